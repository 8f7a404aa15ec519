// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Static: evicts the line with the lowest static score (LSM-GNN, section 4.2). No admission: a cold
// newcomer may replace a hotter line. Batch-synchrony changes nothing but that lines touched at t
// stay.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct StaticScore : PolicyDefaults {
  static constexpr bool kNeedsScore = true;
  using Line = cache::Line<1>;  // word 0: score

  LSM_HOST_DEVICE void on_insert(SetView<StaticScore>& set, int32_t way,
                                 const Newcomer& row) const {
    set.lines[way].word[0] = row.score;
  }
  LSM_HOST_DEVICE static uint32_t score(const Line& line) { return line.word[0]; }
  LSM_HOST_DEVICE void set_score(Line& line, uint32_t score) const { line.word[0] = score; }
  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const { return line.word[0]; }
};

}  // namespace lsm::cache
