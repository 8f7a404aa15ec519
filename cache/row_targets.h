// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lsm {

/// Where rows of a plan are wanted, in one piece of memory that may belong to another rank: row k
/// of the list is the plan's row row_of[k], and goes to row place[k] of `rows`, or to row k if
/// there are no places. A plan's row may be wanted any number of times.
struct RowTargets {
  std::span<const int32_t> row_of;
  std::byte* rows = nullptr;
  int64_t num_rows = 0;  // that `rows` has room for
  std::span<const int32_t> place;
};

/// Throws ArgumentError for a row that the plan, of `num_positions` rows, or the memory lacks.
/// Places that are named twice are not noticed.
void check_targets(std::span<const RowTargets> targets, int64_t num_positions);

}  // namespace lsm
