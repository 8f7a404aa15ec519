// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A submission queue and its completion queue, for host and device code. Submission: contiguous.h
// (one submitter, whole batches) or sparse.h (many submitters); a queue uses only one of the two
// shapes. Completion: completion.h.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/io/nvme/protocol/command.h"
#include "kernels/io/nvme/protocol/memory_order.h"
#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

/// The shared state of a queue's users, in memory that all of them reach. Positions count entries
/// since the queue was created and never wrap; modulo the depth they are entries. All zero
/// initially. Fields that different parties write lie in different cache lines.
struct QueueState {
  // Submission: positions handed out.
  alignas(64) uint64_t tickets;
  // The doorbell: its lock (sparse), the position up to which it was rung, and the number of rings.
  alignas(64) uint32_t ringing;
  uint64_t rung;
  uint64_t tail_writes;
  // Completion: entries taken, entries reported to the controller, and the number of reports.
  alignas(64) uint64_t consumed;
  uint64_t acknowledged;
  uint64_t head_writes;
};

/// Trivially copyable; owns nothing. Depths are powers of two, completion_depth >= depth >= 2.
/// Aligned, so that kernels load it in four words of 16 bytes.
struct alignas(16) QueuePair {
  Command* submission;      // [depth]
  Completion* completion;   // [completion_depth], zero at the start
  uint32_t* tail_doorbell;  // in the controller's registers
  uint32_t* head_doorbell;  // in the controller's registers
  uint32_t* published;      // [depth], zero at the start: laps, for the sparse shape
  QueueState* state;
  uint32_t depth;
  uint32_t completion_depth;
  uint16_t id;

  /// Most commands that may be in flight: a queue with all entries in use would look empty.
  LSM_HOST_DEVICE uint32_t capacity() const { return depth - 1; }

  /// The number of further commands that may be submitted after `tickets`. Commands whose
  /// completions were taken have been fetched, and the controller fetches in order, so it will not
  /// read an entry below this bound again. The acquire orders our write of the entry after that.
  LSM_HOST_DEVICE uint32_t room(uint64_t tickets) const {
    const uint64_t in_flight = tickets - load_acquire(state->consumed);
    return in_flight >= capacity() ? 0 : capacity() - static_cast<uint32_t>(in_flight);
  }

  /// Writes the entry of `position`. The controller does not read it before the doorbell.
  LSM_HOST_DEVICE void write(uint64_t position, const ReadCommand& command) const {
    submission[position & (depth - 1)] = command.wire();
  }
  void write(uint64_t position, const TransferCommand& command) const {
    submission[position & (depth - 1)] = command.wire();
  }

  /// Rings the doorbell for all entries before position `end`.
  LSM_HOST_DEVICE void ring_tail(uint64_t end) const {
    state->rung = end;
    ++state->tail_writes;
    write_doorbell(tail_doorbell, static_cast<uint32_t>(end & (depth - 1)));
  }
};

}  // namespace lsm::nvme
