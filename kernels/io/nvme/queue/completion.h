// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Taking completions: by one thread (or warp) per queue at a time, in an operation of its own,
// apart from submission. Nothing here waits: entries that are not there yet are left for the next
// call.
#pragma once

#include "kernels/io/nvme/queue/queue_pair.h"

namespace lsm::nvme {

/// The phase that the entry of `position` has once the controller has written it: it is inverted
/// from lap to lap, beginning with 1 (4.6).
LSM_HOST_DEVICE inline uint32_t expected_phase(const QueuePair& queue, uint64_t position) {
  return (static_cast<uint32_t>(position / queue.completion_depth) & 1) ^ 1;
}

/// True if the completion of `position` is there; if so, `entry` has its identifier and status. One
/// load, because a GPU looks across the bus, and dword 3 is all that a read's end has to say. The
/// acquire orders reading the rest of the entry, and the data that the controller wrote before it,
/// after the phase.
LSM_HOST_DEVICE inline bool poll_status(const QueuePair& queue, uint64_t position,
                                        Completion* entry) {
  Completion& there = queue.completion[position & (queue.completion_depth - 1)];
  entry->dwords[3] = load_acquire(there.dwords[3]);
  return entry->phase() == expected_phase(queue, position);
}

/// As poll_status(), with all of the entry.
LSM_HOST_DEVICE inline bool poll(const QueuePair& queue, uint64_t position, Completion* entry) {
  if (!poll_status(queue, position, entry)) return false;
  const Completion& there = queue.completion[position & (queue.completion_depth - 1)];
  entry->dwords[0] = there.dwords[0];
  entry->dwords[1] = there.dwords[1];
  entry->dwords[2] = there.dwords[2];
  return true;
}

/// Makes all entries before position `end` taken. The controller is told as seldom as the
/// completion queue's depth allows: it must never run out of entries for the commands in flight,
/// which are fewer than `depth`. The releases order our reading of entries before their reuse, and
/// the head comes before the room for new commands.
LSM_HOST_DEVICE inline void finish_taking(const QueuePair& queue, uint64_t end) {
  QueueState& state = *queue.state;
  if (end == state.consumed) return;
  if (end - state.acknowledged > queue.completion_depth - queue.depth) {
    state.acknowledged = end;
    ++state.head_writes;
    write_doorbell(queue.head_doorbell, static_cast<uint32_t>(end & (queue.completion_depth - 1)));
  }
  store_release(state.consumed, end);
}

/// Calls visit(const Completion&) for up to `limit` completions that are there; returns how many.
/// visit() may reuse the command's identifier and buffer, but must not submit to this queue.
template <class Visit>
LSM_HOST_DEVICE uint32_t take_completions(const QueuePair& queue, uint32_t limit, Visit&& visit) {
  const uint64_t first = queue.state->consumed;
  uint32_t count = 0;
  Completion entry;
  while (count < limit && poll(queue, first + count, &entry)) {
    visit(entry);
    ++count;
  }
  finish_taking(queue, first + count);
  return count;
}

}  // namespace lsm::nvme
