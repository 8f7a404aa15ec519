// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Random: BaM (Qureshi et al., ASPLOS 2023) evicts the line that a thread happens to get. Here the
// draw is Philox of (set, iteration, eviction) under the seed, so that it can be replayed.
// Batch-synchrony: the draw is over the lines not touched at t.
#pragma once

#include "cache/policy/line.h"
#include "kernels/core/philox.h"

namespace lsm::cache {

/// The way that this turn's draw selects among those for which `eligible(way)` is true, or -1.
template <class Eligible>
LSM_HOST_DEVICE int32_t draw_way(uint64_t seed, const Turn& turn, int32_t ways,
                                 const Eligible& eligible) {
  uint32_t count = 0;
  for (int32_t way = 0; way < ways; ++way) count += eligible(way);
  if (count == 0) return -1;
  const uint32_t word = philox4x32({{turn.set, turn.t, turn.evictions, 0}}, seed).word[0];
  int64_t rank = static_cast<int64_t>((uint64_t{word} * count) >> 32);
  int32_t way = -1;
  while (rank >= 0) rank -= eligible(++way);
  return way;
}

struct Random : PolicyDefaults {
  uint64_t seed = 0;

  LSM_HOST_DEVICE int32_t pick_victim(SetView<Random>& set, const Turn& turn) const {
    return draw_way(seed, turn, set.ways, [&](int32_t way) { return set.can_evict(way, turn); });
  }
};

}  // namespace lsm::cache
