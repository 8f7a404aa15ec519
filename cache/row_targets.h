// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lsm {

/// A destination of a plan's rows: one piece of memory, which may belong to another rank. Row k of
/// the list is the plan's row row_of[k] and goes to row place[k] of `rows`, or to row k without
/// places. A plan's row may appear any number of times.
struct RowTargets {
  std::span<const int32_t> row_of;
  std::byte* rows = nullptr;
  int64_t num_rows = 0;  // that `rows` has room for
  std::span<const int32_t> place;
};

/// Throws ArgumentError for a row outside the plan's `num_positions` rows or outside the memory.
/// Does not notice repeated places.
void check_targets(std::span<const RowTargets> targets, int64_t num_positions);

}  // namespace lsm
