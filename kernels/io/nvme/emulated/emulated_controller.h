// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/io/nvme/emulated/admin.h"
#include "kernels/io/nvme/emulated/io_server.h"

namespace lsm::nvme {

/// A controller emulated by a thread: registers that the host writes like BAR0, queues in shared
/// memory, data through PRPs. Written from the specification, not from our queue code.
class EmulatedController {
 public:
  EmulatedController(const ControllerOptions& options, std::vector<EmulatedNamespace> namespaces);
  ~EmulatedController();
  EmulatedController(const EmulatedController&) = delete;
  EmulatedController& operator=(const EmulatedController&) = delete;

  uint32_t* registers() { return registers_; }
  size_t register_bytes() const {
    return kDoorbells + 2 * (options_.num_queues + 1) * (4u << options_.doorbell_stride_shift);
  }
  DmaSpace& memory() { return *memory_; }
  const ControllerCounters& counters() const { return counters_; }

 private:
  void run();
  /// Applies the host's writes to CC. Returns true if something changed.
  bool obey_configuration();
  void start();
  void stop();
  bool valid_tail(SubmissionQueue& queue, uint32_t tail);
  bool serve_admin_queue();
  bool serve_queue(SubmissionQueue& queue);

  const ControllerOptions options_;
  const std::vector<EmulatedNamespace> namespaces_;
  const HostBlock register_memory_;  // pages of its own, because a GPU maps whole pages
  uint32_t* const registers_;
  std::shared_ptr<DmaSpace> memory_;
  ControllerCounters counters_;
  QueueTable queues_;
  AdminServer admin_;
  IoServer reads_;
  uint32_t configuration_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace lsm::nvme
