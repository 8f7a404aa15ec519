// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Belady's MIN with bypass (Belady, 1966), offline: evicts the line with the farthest next use in
// the whole trace, lines without one first. Admits a newcomer only if its next use is nearer than
// the victim's. Within sets; simulate_belady() is the fully associative bound. Batch-synchrony:
// newcomers of one iteration are taken in request order, not best first.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct Belady : PolicyDefaults {
  static constexpr bool kNeedsWindow = true;
  static constexpr bool kAdmits = true;
  using Line = cache::Line<1>;

  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const {
    return next_use_rank(line.next_use);
  }
  LSM_HOST_DEVICE bool admits(const Newcomer& row, const Line& victim, const Turn&) const {
    return next_use_rank(row.next_use) > next_use_rank(victim.next_use);
  }
};

}  // namespace lsm::cache
