// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The checks of a plan before anything moves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/plan.h"

namespace lsm {

/// Checks plans against the tiers' sizes.
class PlanCheck {
 public:
  /// Rows of each tier, by RowSource.
  explicit PlanCheck(const std::array<int64_t, kNumTiers>& tier_rows);

  /// Throws ArgumentError if an index is out of range, a slot or line is written twice or a word
  /// names no coming iteration.
  void operator()(const cache::Plan& plan);

 private:
  void check_sources(const cache::Plan& plan) const;
  void claim(const char* name, std::vector<uint32_t>& written, std::span<const int64_t> rows,
             bool may_drop);

  const std::array<int64_t, kNumTiers> tier_rows_;
  // Per row: the number of the last plan that wrote it.
  std::vector<uint32_t> lines_written_;
  std::vector<uint32_t> victims_written_;
  uint32_t plan_number_ = 0;
};

}  // namespace lsm
