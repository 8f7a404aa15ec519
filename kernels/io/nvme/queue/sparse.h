// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Submission by many submitters at once (warps, or host threads), each with a few rows at a time.
// One atomic operation takes tickets for a whole group, each member writes its own entry, and a
// member that finds the doorbell free rings it for all complete entries, its own and others'.
#pragma once

#include "kernels/io/nvme/queue/queue_pair.h"

namespace lsm::nvme {

/// Commands of one group: a warp.
inline constexpr uint32_t kGroupSize = 32;

struct Tickets {
  uint64_t first;
  uint32_t count;
};

/// Takes positions for up to `wanted` commands, fewer if there is no room. Called by one member of
/// a group.
LSM_HOST_DEVICE inline Tickets take_tickets(const QueuePair& queue, uint32_t wanted) {
  uint64_t first = load_acquire(queue.state->tickets);
  for (;;) {
    const uint32_t room = queue.room(first);
    const uint32_t count = wanted < room ? wanted : room;
    if (count == 0 || compare_exchange(queue.state->tickets, first, first + count)) {
      return {first, count};
    }
  }
}

/// The value that marks the entry of `position` as written: the lap, so that marks of earlier laps
/// need no clearing.
LSM_HOST_DEVICE inline uint32_t lap_mark(const QueuePair& queue, uint64_t position) {
  return static_cast<uint32_t>(position / queue.depth) + 1;
}

/// Writes the entry of `position` and marks it. The release orders the entry before the mark, for a
/// thread that sees the mark and rings the doorbell.
LSM_HOST_DEVICE inline void publish(const QueuePair& queue, uint64_t position,
                                    const ReadCommand& command) {
  queue.write(position, command);
  store_release(queue.published[position & (queue.depth - 1)], lap_mark(queue, position));
}

LSM_HOST_DEVICE inline bool is_published(const QueuePair& queue, uint64_t position) {
  uint32_t& mark = queue.published[position & (queue.depth - 1)];
  return load_acquire(mark) == lap_mark(queue, position);
}

struct Nothing {
  LSM_HOST_DEVICE void operator()() const {}
};

/// Rings the doorbell once for all consecutive marked entries. Returns at once if another thread
/// holds it, which looks again after its release.
///
/// No entry is left behind: `ringing` changes by exchanges only, so either our exchange finds it
/// free, or the holder's release comes after ours and sees our mark, and the holder looks again.
///
/// Calls between() between the last look and the release, the moment in which a test lets another
/// submitter come.
template <class Between = Nothing>
LSM_HOST_DEVICE void ring_published(const QueuePair& queue, Between&& between = {}) {
  QueueState& state = *queue.state;
  while (exchange(state.ringing, 1u) == 0) {
    uint64_t end = state.rung;
    // Bounded: at most the capacity is unrung.
    while (end - state.rung < queue.depth && is_published(queue, end)) ++end;
    if (end != state.rung) queue.ring_tail(end);
    between();
    exchange(state.ringing, 0u);
    if (!is_published(queue, end)) return;
  }
}

/// Submits make(0), make(1), ... (ReadCommand) in groups. Returns the number that fit. Safe from
/// any number of host threads.
template <class Make>
uint32_t submit_sparse(const QueuePair& queue, uint32_t wanted, Make&& make) {
  uint32_t done = 0;
  while (done < wanted) {
    const uint32_t rest = wanted - done;
    const Tickets tickets = take_tickets(queue, rest < kGroupSize ? rest : kGroupSize);
    if (tickets.count == 0) break;
    for (uint32_t i = 0; i < tickets.count; ++i) {
      publish(queue, tickets.first + i, make(done + i));
    }
    ring_published(queue);
    done += tickets.count;
  }
  return done;
}

}  // namespace lsm::nvme
