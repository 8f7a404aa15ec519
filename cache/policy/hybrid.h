// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Hybrid (LSM-GNN, section 4.2): lines are ordered by a level from the last refresh, then by static
// score. Levels, first evicted first: 0 no reuse in the window, 1 reuse farther than near_fraction
// of it, 2 unknown (inserted or hit since the refresh), 3 nearer. With a victim buffer, 0 and 1
// swap: far lines are evicted first, because the buffer keeps them. Batch-synchrony: as for
// dynamic; distances are counted from the iteration that is planned.
#pragma once

#include "cache/policy/dynamic.h"

namespace lsm::cache {

struct Hybrid : PolicyDefaults {
  static constexpr bool kNeedsWindow = true;
  static constexpr bool kNeedsScore = true;
  static constexpr bool kRefreshes = true;
  using Line = cache::Line<2>;  // word 0: reuse, word 1: score

  uint32_t near_distance = 0;  // floor(near_fraction * W): the same distances are farther
  bool has_victim_buffer = false;

  LSM_HOST_DEVICE void on_hit(Line& line) const { line.word[0] = kReuseUnknown; }
  LSM_HOST_DEVICE void on_insert(SetView<Hybrid>& set, int32_t way, const Newcomer& row) const {
    set.lines[way].word[0] = kReuseUnknown;
    set.lines[way].word[1] = row.score;
  }
  LSM_HOST_DEVICE void refresh(Line& line) const { line.word[0] = line.next_use; }

  LSM_HOST_DEVICE static uint32_t score(const Line& line) { return line.word[1]; }
  LSM_HOST_DEVICE void set_score(Line& line, uint32_t score) const { line.word[1] = score; }
  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn& turn) const {
    return level(line.word[0], turn.t) << 32 | line.word[1];
  }

 private:
  LSM_HOST_DEVICE uint64_t level(uint32_t reuse, uint32_t t) const {
    if (reuse == kReuseUnknown) return 2;
    if (reuse == kReuseNone) return has_victim_buffer ? 1 : 0;
    if (reuse - t <= near_distance) return 3;
    return has_victim_buffer ? 0 : 1;
  }
};

}  // namespace lsm::cache
