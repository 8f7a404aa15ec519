// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Decides about the candidates of one set. One task, a host thread or a warp, owns a set for a
// whole iteration, so there are no locks and no per-line states.
#pragma once

#include "cache/policy/line.h"
#include "kernels/core/lanes.h"

namespace lsm::cache {

/// The line of a newcomer, and the row evicted for it.
struct Placement {
  int32_t way = -1;  // -1: bypassed
  uint32_t evicted_next_use = kNoNextUse;
  uint32_t evicted_touched = 0;
  int64_t evicted_id = kEmptyTag;  // kEmptyTag: none
  uint32_t evicted_score = 0;      // if the policy needs scores
};

/// The key of a line that cannot be chosen. No policy has a key so high.
inline constexpr uint64_t kNoKey = ~uint64_t{0};

/// The first of [0, count) whose key_of(i) is lowest, or -1 if all are kNoKey.
template <class Lanes, class KeyOf>
LSM_HOST_DEVICE int32_t first_lowest(const Lanes& lanes, int32_t count, const KeyOf& key_of) {
  typename Lanes::template Var<int32_t> found;
  typename Lanes::template Var<uint64_t> keys;
  lanes.each([&](int lane) {
    int32_t lowest = -1;
    uint64_t lowest_key = kNoKey;
    for (int32_t i = lane; i < count; i += Lanes::kLanes) {
      // Without branches, since the lowest is unpredictable.
      const uint64_t key = key_of(i);
      const bool is_lower = key < lowest_key;
      lowest = is_lower ? i : lowest;
      lowest_key = is_lower ? key : lowest_key;
    }
    found[lane] = lowest;
    keys[lane] = lowest_key;
  });
  if constexpr (Lanes::kLanes == 1) return found[0];
  const uint64_t key = lanes.min(keys);
  lanes.each([&](int lane) {
    // -1 is the largest.
    keys[lane] = static_cast<uint32_t>(keys[lane] == key ? found[lane] : -1);
  });
  return static_cast<int32_t>(lanes.min(keys));
}

/// The lowest of `ways` ways for which holds(way) is true, or -1. The lanes vote on kLanes ways at
/// a time.
template <class Lanes, class Holds>
LSM_HOST_DEVICE int32_t first_way(const Lanes& lanes, int32_t ways, const Holds& holds) {
  for (int32_t base = 0; base < ways; base += Lanes::kLanes) {
    typename Lanes::template Var<bool> votes;
    lanes.each([&](int lane) { votes[lane] = base + lane < ways && holds(base + lane); });
    const int first = lanes.first(votes);
    if (first >= 0) return base + first;
  }
  return -1;
}

/// The lowest way whose line holds no row, or -1. Lines fill from the lowest way up and are never
/// emptied.
template <class Lanes, class Policy>
LSM_HOST_DEVICE int32_t empty_way(const Lanes& lanes, const SetView<Policy>& set) {
  if (set.lines[set.ways - 1].touched != 0) return -1;
  return first_way(lanes, set.ways, [&](int32_t way) { return set.lines[way].touched == 0; });
}

/// The way whose line `policy` evicts in a full set, or -1. All lanes compare keys; a policy with
/// pick_victim() runs on one lane.
template <class Lanes, class Policy>
LSM_HOST_DEVICE int32_t pick_victim(const Lanes& lanes, const Policy& policy, SetView<Policy>& set,
                                    const Turn& turn) {
  if constexpr (requires { policy.key(set.lines[0], turn); }) {
    return first_lowest(lanes, set.ways, [&](int32_t way) {
      const uint64_t key = policy.key(set.lines[way], turn);
      if constexpr (RanksNewcomers<Policy>) return key;
      return set.can_evict(way, turn) ? key : kNoKey;
    });
  } else {
    typename Lanes::template Var<int32_t> found;
    lanes.each([&](int lane) {
      if (lane == 0) found[lane] = policy.pick_victim(set, turn);
    });
    return lanes.get(found, 0);
  }
}

/// Inserts `row` into the lowest empty way, or over the policy's victim, or not at all. If the
/// policy ranks newcomers, those with a higher key come before it, and once a row is not inserted,
/// none of the others is.
template <class Lanes, class Policy>
LSM_HOST_DEVICE Placement place(const Lanes& lanes, const Policy& policy, SetView<Policy>& set,
                                Turn& turn, const Newcomer& row) {
  Placement placement;
  placement.way = empty_way(lanes, set);
  if (placement.way < 0) {
    const int32_t victim = pick_victim(lanes, policy, set, turn);
    if (victim < 0) return placement;
    if constexpr (RanksNewcomers<Policy>) {
      if (policy.key(row, turn) <= policy.key(set.lines[victim], turn)) return placement;
    }
    placement = {victim, set.lines[victim].next_use, set.lines[victim].touched, set.tags[victim]};
    if constexpr (Policy::kNeedsScore) {
      placement.evicted_score = Policy::score(set.lines[victim]);
    }
    ++turn.evictions;
  }
  lanes.each([&](int lane) {
    if (lane != 0) return;
    set.tags[placement.way] = row.id;
    set.lines[placement.way] = {turn.t + 1, row.next_use, {}};
    policy.on_insert(set, placement.way, row);
  });
  return placement;
}

}  // namespace lsm::cache
