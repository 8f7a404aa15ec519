// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Round robin: a pointer per set walks over the ways. It evicts the line under it and steps past
// it. Baseline of LSM-GNN (section 6). Batch-synchrony: lines touched at t are skipped, and filling
// an empty way does not move the pointer.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct RoundRobin : PolicyDefaults {
  struct State {
    uint32_t pointer;
  };

  LSM_HOST_DEVICE int32_t pick_victim(SetView<RoundRobin>& set, const Turn& turn) const {
    const int32_t pointer = static_cast<int32_t>(set.state->pointer);
    for (int32_t step = 0; step < set.ways; ++step) {
      const int32_t way = (pointer + step) % set.ways;
      if (!set.can_evict(way, turn)) continue;
      set.state->pointer = (way + 1) % set.ways;
      return way;
    }
    return -1;
  }
};

}  // namespace lsm::cache
