// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Dynamic (LSM-GNN, section 5.3): every update_period iterations each line gets its first reuse in
// the window. Evicts lines without one first, then those inserted or hit since (unknown), then
// those with the farthest reuse. The paper walks over the window and looks its ids up; the next-use
// chain keeps that number in the line, so the refresh is one pass over the lines. Batch-synchrony:
// a refresh at t comes before the look-ups of t and sees batch t itself.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

/// The reuse of a line as of the last refresh.
enum Reuse : uint32_t { kReuseNone = 0, kReuseUnknown = 0xFFFFFFFFu };  // else: a batch

struct Dynamic : PolicyDefaults {
  static constexpr bool kNeedsWindow = true;
  static constexpr bool kRefreshes = true;
  using Line = cache::Line<1>;  // word 0: reuse

  LSM_HOST_DEVICE void on_hit(Line& line) const { line.word[0] = kReuseUnknown; }
  LSM_HOST_DEVICE void on_insert(SetView<Dynamic>& set, int32_t way, const Newcomer&) const {
    set.lines[way].word[0] = kReuseUnknown;
  }
  LSM_HOST_DEVICE void refresh(Line& line) const { line.word[0] = line.next_use; }

  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const {
    if (line.word[0] == kReuseNone) return 0;
    if (line.word[0] == kReuseUnknown) return 1;
    return 1 + next_use_rank(line.word[0]);
  }
};
static_assert(kReuseNone == static_cast<uint32_t>(kNoNextUse));

}  // namespace lsm::cache
