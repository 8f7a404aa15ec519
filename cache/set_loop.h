// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// What happens in one set: look-ups, and the placement of a newcomer. One task owns a set for a
// whole iteration, so there are no locks and no per-line states.
#pragma once

#include "cache/line.h"

namespace lsm::cache {

/// The way that holds `id`, or -1.
LSM_HOST_DEVICE inline int32_t find_way(const int64_t* tags, int32_t ways, int64_t id) {
  for (int32_t way = 0; way < ways; ++way) {
    if (tags[way] == id) return way;
  }
  return -1;
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
      if (!set.can_evict(way, turn)) continue;
      const uint64_t key = policy.key(set.lines[way], turn);
      if (lowest >= 0 && key >= lowest_key) continue;
      lowest = way;
      lowest_key = key;
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
  // Lines are filled from the lowest way up and never emptied.
  if (set.tags[set.ways - 1] == kEmptyTag) {
    placement.way = find_way(set.tags, set.ways, kEmptyTag);
  } else {
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
