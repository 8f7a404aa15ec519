// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Window buffering (GIDS, section 3.4): a line whose next use is in the window is pinned; the
// others are evicted at random. GIDS counts pending uses per line; here the next-use chain has the
// same information. Batch-synchrony: lines touched at t are pinned at t, whatever follows.
#pragma once

#include "cache/policy/random.h"

namespace lsm::cache {

struct Window : PolicyDefaults {
  static constexpr bool kNeedsWindow = true;
  uint64_t seed = 0;

  LSM_HOST_DEVICE int32_t pick_victim(SetView<Window>& set, const Turn& turn) const {
    return draw_way(seed, turn, set.ways, [&](int32_t way) {
      return set.can_evict(way, turn) && set.lines[way].next_use == kNoNextUse;
    });
  }
};

}  // namespace lsm::cache
