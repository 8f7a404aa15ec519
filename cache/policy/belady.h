// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Belady's MIN with bypass (Belady, 1966), offline and within sets: evicts the line with the
// farthest next use in the whole trace, lines without one first. Ranks newcomers alike. With one
// set, no cache of as many lines has more hits. Batch-synchrony: as for lookahead.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct Belady : PolicyDefaults {
  static constexpr bool kNeedsWindow = true;
  using Line = cache::Line<1>;

  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const {
    return next_use_rank(line.next_use);
  }
  LSM_HOST_DEVICE uint64_t key(const Newcomer& row, const Turn&) const {
    return next_use_rank(row.next_use);
  }
};

}  // namespace lsm::cache
