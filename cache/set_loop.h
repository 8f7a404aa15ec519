// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// What happens to one set when a row asks for a line. One task owns a set for a
// whole iteration, so there are no locks and no per-line states.
#pragma once

#include "cache/line.h"

namespace lsm::cache {

/// The lowest way whose line holds no row, or -1. Lines are filled from the lowest way up and never
/// emptied.
template <class Policy>
LSM_HOST_DEVICE int32_t empty_way(const SetView<Policy>& set) {
  if (set.lines[set.ways - 1].touched != 0) return -1;
  int32_t way = 0;
  while (set.lines[way].touched != 0) ++way;
  return way;
}

/// Where a newcomer went, and which row had to go for it.
struct Placement {
  int32_t way = -1;  // -1: bypassed
  uint32_t evicted_next_use = kNoNextUse;
  int64_t evicted_id = kEmptyTag;  // kEmptyTag: none
};

/// The way whose line `policy` gives up in a full set, or -1.
template <class Policy>
LSM_HOST_DEVICE int32_t pick_victim(const Policy& policy, SetView<Policy>& set, const Turn& turn) {
  if constexpr (requires { policy.key(set.lines[0], turn); }) {
    int32_t lowest = -1;
    uint64_t lowest_key = ~uint64_t{0};
    for (int32_t way = 0; way < set.ways; ++way) {
      // Without branches: which line is lowest cannot be predicted.
      const uint64_t key = policy.key(set.lines[way], turn);
      const bool is_lower = set.can_evict(way, turn) & (key < lowest_key);
      lowest = is_lower ? way : lowest;
      lowest_key = is_lower ? key : lowest_key;
    }
    return lowest;
  } else {
    return policy.pick_victim(set, turn);
  }
}

/// Inserts `row` into the lowest empty way, or over the policy's victim, or not at all.
template <class Policy>
LSM_HOST_DEVICE Placement place(const Policy& policy, SetView<Policy>& set, Turn& turn,
                                const Newcomer& row) {
  Placement placement;
  placement.way = empty_way(set);
  if (placement.way < 0) {
    const int32_t victim = pick_victim(policy, set, turn);
    if (victim < 0) return placement;
    if constexpr (Policy::kAdmits) {
      if (!policy.admits(row, set.lines[victim], turn)) return placement;
    }
    placement = {victim, set.lines[victim].next_use, set.tags[victim]};
    ++turn.evictions;
  }
  set.tags[placement.way] = row.id;
  set.lines[placement.way] = {turn.t + 1, row.next_use, {}};
  policy.on_insert(set, placement.way, row);
  return placement;
}

}  // namespace lsm::cache
