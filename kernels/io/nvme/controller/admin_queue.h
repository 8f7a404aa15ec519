// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kernels/io/nvme/queue/queue_pair.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Address and length of a queue, for the commands that create it.
struct QueuePlace {
  uint16_t id;
  uint32_t entries;
  uint64_t address;
};

/// The admin queue pair, one command at a time. It has the commands of set-up, and none that could
/// change stored data. Not thread-safe. Each command throws std::runtime_error, with the status in
/// words, if the controller refuses it, and TimeoutError without an answer.
class AdminQueue {
 public:
  static constexpr uint32_t kDepth = 16;

  /// `name`: of the controller, for messages.
  AdminQueue(Transport& transport, std::string name, uint32_t doorbell_stride_bytes,
             double timeout_secs);

  uint64_t submission_address() const { return submission_.address(0); }
  uint64_t completion_address() const { return completion_.address(0); }

  /// The 4,096 bytes of an Identify data structure (5.15), valid until the next call.
  const std::byte* identify_controller();
  const std::byte* identify_namespace(uint32_t namespace_id);

  /// The number of pairs of I/O queues that the controller grants of `wanted` (5.21.1.7).
  uint32_t set_num_queues(uint32_t wanted);

  void create_completion_queue(const QueuePlace& place);
  void create_submission_queue(const QueuePlace& place, uint16_t completion_queue);
  void delete_completion_queue(uint16_t id);
  void delete_submission_queue(uint16_t id);

 private:
  const std::byte* identify(uint32_t structure, uint32_t namespace_id);
  /// Returns dword 0 of the completion. `what`: the command in words, for messages.
  uint32_t execute(const Command& request, const std::string& what);
  Completion await(uint16_t id, const std::string& what);

  const std::string name_;
  const double timeout_secs_;
  DmaMemory submission_;
  DmaMemory completion_;
  DmaMemory data_;
  QueueState state_{};
  QueuePair pair_{};
};

}  // namespace lsm::nvme
