// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/io/nvme/emulated/dma_space.h"
#include "kernels/io/nvme/emulated/prp_walk.h"
#include "kernels/io/nvme/emulated/queues.h"

namespace lsm::nvme {

/// Executes the I/O commands of an emulated controller, and holds completions back for injected
/// faults.
class IoServer {
 public:
  IoServer(const ControllerOptions& options, const DmaSpace& memory,
           const std::vector<EmulatedNamespace>& namespaces, QueueTable& queues,
           ControllerCounters& counters)
      : options_(options),
        memory_(memory),
        namespaces_(namespaces),
        queues_(queues),
        counters_(counters) {}

  /// Executes a command fetched from `queue`. Completes it now or later.
  void execute(SubmissionQueue& queue, const Command& command);
  /// Posts the held-back completions that are due. Returns true if any is still held back.
  bool post_held();
  /// Drops the held-back completions of a deleted queue (0: of all).
  void forget(uint16_t queue);

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    Clock::time_point due;
    uint16_t queue;
    uint16_t id;
    uint16_t status;
  };

  uint16_t check(const Command& command) const;
  uint16_t perform(const Command& command);
  void spoil();
  void complete(SubmissionQueue& queue, uint16_t id, uint16_t status);
  /// Returns false if the completion queue is full.
  bool post(SubmissionQueue& queue, uint16_t id, uint16_t status);
  void misbehave(SubmissionQueue& queue, const Command& command);

  const ControllerOptions& options_;
  const DmaSpace& memory_;
  const std::vector<EmulatedNamespace>& namespaces_;
  QueueTable& queues_;
  ControllerCounters& counters_;
  std::vector<Segment> segments_;
  std::vector<Held> held_;
  uint64_t num_commands_ = 0;
  uint64_t num_rounds_ = 0;
};

}  // namespace lsm::nvme
