// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The controller's side of queues: their memory, and the entries fetched and posted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/io/nvme/emulated/block_source.h"
#include "kernels/io/nvme/emulated/options.h"
#include "kernels/io/nvme/protocol/memory_order.h"
#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

struct EmulatedNamespace {
  std::shared_ptr<BlockSource> source;
  uint32_t block_bytes;

  /// The last block may reach past the end of the source and reads as zero there. An empty source
  /// has one block, because a namespace without blocks would be inactive.
  uint64_t num_blocks() const {
    return std::max<uint64_t>(1, (source->bytes() + block_bytes - 1) / block_bytes);
  }
};

/// Counters of an emulated controller, for tests and benchmarks.
struct ControllerCounters {
  std::atomic<int64_t> reads{0};              // read commands fetched
  std::atomic<int64_t> errors{0};             // completed with an error, injected or not
  std::atomic<int64_t> losses{0};             // never completed, on purpose
  std::atomic<int64_t> invalid_doorbells{0};  // values that no doorbell may have
};

struct CompletionQueue {
  Completion* entries = nullptr;
  uint32_t depth = 0;
  uint32_t* head_doorbell = nullptr;
  uint32_t tail = 0;
  uint32_t phase = 1;
  uint32_t num_submission_queues = 0;

  bool exists() const { return entries != nullptr; }

  /// The acquire orders our write of an entry after the host's read of its former contents.
  bool full() const { return (tail + 1) % depth == load_acquire(*head_doorbell) % depth; }

  /// Posts an entry. Precondition: not full. The release of the last dword makes the rest of the
  /// entry, and the data before it, visible to a host that sees its phase.
  void post(uint32_t result, uint16_t queue, uint32_t head, uint16_t id, uint16_t status) {
    Completion& entry = entries[tail];
    entry.dwords[0] = result;
    entry.dwords[1] = 0;
    entry.dwords[2] = head | static_cast<uint32_t>(queue) << 16;
    store_release(entry.dwords[3], id | phase << 16 | static_cast<uint32_t>(status) << 17);
    tail = (tail + 1) % depth;
    if (tail == 0) phase ^= 1;
  }
};

struct SubmissionQueue {
  const Command* entries = nullptr;
  uint32_t depth = 0;
  uint32_t* tail_doorbell = nullptr;
  uint32_t head = 0;
  uint16_t id = 0;
  uint16_t completion_queue = 0;
  uint32_t seen_invalid_tail = 0;  // the doorbell value that was reported last
  std::vector<bool> in_flight;     // by command identifier: fetched, and not completed

  bool exists() const { return entries != nullptr; }
};

/// Entry 0 is the admin queue's.
struct QueueTable {
  std::vector<SubmissionQueue> submission;
  std::vector<CompletionQueue> completion;
};

}  // namespace lsm::nvme
