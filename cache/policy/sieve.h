// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// SIEVE (Zhang et al., NSDI 2024): lines stay in insertion order; a hand moves from the oldest to
// the newest, clears the visited bits that it meets and evicts the first line without one; past the
// newest it starts over at the oldest. A hit sets the bit. One queue and one hand per set.
// Batch-synchrony: lines touched at t are skipped and keep their bit; the hand does not move if no
// line can be evicted.
#pragma once

#include "cache/policy/insertion_order.h"

namespace lsm::cache {

struct Sieve : PolicyDefaults {
  using Line = cache::Line<2>;  // word 0: sequence number of the insertion; word 1: visited bit
  struct State {
    uint32_t next_sequence;
    uint32_t hand;  // sequence number of the line under the hand; 0: the oldest line
  };

  LSM_HOST_DEVICE void on_hit(Line& line) const { line.word[1] = 1; }

  LSM_HOST_DEVICE void on_insert(SetView<Sieve>& set, int32_t way, const Newcomer&) const {
    set.lines[way].word[0] = set.state->next_sequence++;
  }

  LSM_HOST_DEVICE int32_t pick_victim(SetView<Sieve>& set, const Turn& turn) const {
    const auto sequence_of = [&](int32_t way) { return set.lines[way].word[0]; };
    const auto can_evict = [&](int32_t way) { return set.can_evict(way, turn); };
    uint32_t from = set.state->hand;
    // Two passes clear every bit that can be cleared, so the third finds a victim if there is one.
    for (int wraps = 0; wraps < 3;) {
      const int32_t way = oldest_way(set.ways, from, sequence_of, can_evict);
      if (way < 0) {
        from = 0;
        ++wraps;
      } else if (set.lines[way].word[1] != 0) {
        set.lines[way].word[1] = 0;
        from = sequence_of(way) + 1;
      } else {
        set.state->hand = newer_than(set, sequence_of(way));
        return way;
      }
    }
    return -1;
  }

 private:
  /// The sequence number of the next newer line, touched or not; 0 if `sequence` is the newest.
  LSM_HOST_DEVICE static uint32_t newer_than(const SetView<Sieve>& set, uint32_t sequence) {
    const auto sequence_of = [&](int32_t way) { return set.lines[way].word[0]; };
    const int32_t way =
        oldest_way(set.ways, sequence + 1, sequence_of, [](int32_t) { return true; });
    return way < 0 ? 0 : sequence_of(way);
  }
};

}  // namespace lsm::cache
