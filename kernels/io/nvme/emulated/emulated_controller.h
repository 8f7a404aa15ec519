// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/io/nvme/emulated/admin.h"
#include "kernels/io/nvme/emulated/reader.h"

namespace lsm::nvme {

/// A controller played by a thread: registers that the host writes as it would write BAR0, queues
/// in memory that both see, data through PRPs. It knows the specification, not our queue code.
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
  /// Follows what the host wrote to CC. Returns whether something changed.
  bool obey_configuration();
  void start();
  void stop();
  bool valid_tail(SubmissionQueue& queue, uint32_t tail);
  bool serve_admin_queue();
  bool serve_queue(SubmissionQueue& queue);

  const ControllerOptions options_;
  const std::vector<EmulatedNamespace> namespaces_;
  const HostBlock register_memory_;  // pages of their own, as a GPU maps whole ones
  uint32_t* const registers_;
  std::shared_ptr<DmaSpace> memory_;
  ControllerCounters counters_;
  QueueTable queues_;
  AdminServer admin_;
  ReadServer reads_;
  uint32_t configuration_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace lsm::nvme
