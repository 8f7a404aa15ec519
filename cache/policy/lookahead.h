// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Lookahead (ours; after Belady, 1966): evicts lines without a next use in the window first, by
// static score, then those with the farthest next use. Ranks newcomers alike. The next-use chain
// keeps next uses exact, so there is no refresh. With the window covering the trace and no scores
// this is Belady's MIN with bypass, per set. Batch-synchrony costs nothing: after an iteration a
// set holds the best of the lines it had and of the rows that came.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct Lookahead : PolicyDefaults {
  static constexpr bool kNeedsWindow = true;
  static constexpr bool kNeedsScore = true;
  using Line = cache::Line<1>;  // word 0: score

  LSM_HOST_DEVICE void on_insert(SetView<Lookahead>& set, int32_t way, const Newcomer& row) const {
    set.lines[way].word[0] = row.score;
  }
  LSM_HOST_DEVICE static uint32_t score(const Line& line) { return line.word[0]; }
  LSM_HOST_DEVICE void set_score(Line& line, uint32_t score) const { line.word[0] = score; }
  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const {
    return key_of(line.next_use, line.word[0]);
  }
  LSM_HOST_DEVICE uint64_t key(const Newcomer& row, const Turn&) const {
    return key_of(row.next_use, row.score);
  }

 private:
  LSM_HOST_DEVICE static uint64_t key_of(uint32_t next_use, uint32_t score) {
    if (next_use == kNoNextUse) return score;
    return uint64_t{1} << 32 | (0xFFFFFFFFu - next_use);
  }
};

}  // namespace lsm::cache
