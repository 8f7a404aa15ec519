// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/io/nvme/emulated/dma_space.h"
#include "kernels/io/nvme/emulated/queues.h"

namespace lsm::nvme {

/// Executes the admin commands of an emulated controller.
class AdminServer {
 public:
  struct Answer {
    uint16_t status = kSuccess;
    uint32_t result = 0;
  };

  AdminServer(const ControllerOptions& options, const DmaSpace& memory,
              const std::vector<EmulatedNamespace>& namespaces, QueueTable& queues,
              uint32_t* registers)
      : options_(options),
        memory_(memory),
        namespaces_(namespaces),
        queues_(queues),
        registers_(registers) {}

  Answer execute(const Command& command);

 private:
  uint16_t identify(const Command& command);
  void describe_controller(std::byte* data) const;
  void describe_namespace(const EmulatedNamespace& space, std::byte* data) const;
  Answer set_features(const Command& command);
  uint16_t create_completion_queue(const Command& command);
  uint16_t create_submission_queue(const Command& command);
  uint16_t delete_completion_queue(const Command& command);
  uint16_t delete_submission_queue(const Command& command);
  /// Checks the common fields of the two create commands, and finds the queue's memory.
  uint16_t find_queue_memory(const Command& command, size_t entry_bytes, std::byte** memory) const;

  const ControllerOptions& options_;
  const DmaSpace& memory_;
  const std::vector<EmulatedNamespace>& namespaces_;
  QueueTable& queues_;
  uint32_t* const registers_;
};

}  // namespace lsm::nvme
