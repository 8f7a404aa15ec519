// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// CLOCK, or second chance (Corbato, 1968): a hand per set clears the reference bits that it passes
// and takes the first line without one. A hit sets the bit, an insertion clears it.
// Batch-synchrony: lines touched at t are skipped and keep their bit; if all are, the hand rests.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct Clock : PolicyDefaults {
  using Line = cache::Line<1>;  // word 0: reference bit
  struct State {
    uint32_t hand;
  };

  LSM_HOST_DEVICE void on_hit(Line& line) const { line.word[0] = 1; }

  LSM_HOST_DEVICE int32_t pick_victim(SetView<Clock>& set, const Turn& turn) const {
    // The second pass meets no bits but those of touched lines.
    for (int32_t step = 0; step < 2 * set.ways; ++step) {
      const int32_t way = (static_cast<int32_t>(set.state->hand) + step) % set.ways;
      if (!set.can_evict(way, turn)) continue;
      if (set.lines[way].word[0] == 0) {
        set.state->hand = (way + 1) % set.ways;
        return way;
      }
      set.lines[way].word[0] = 0;
    }
    return -1;
  }
};

}  // namespace lsm::cache
