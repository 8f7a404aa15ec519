// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Ids of nodes, their ranges in one space, and their rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lsm {

/// The rows of nodes `first` to `first + num_nodes - 1`: node `first + i` has row table[i], or row
/// i if `table` is empty.
struct RowMap {
  int64_t first = 0;
  int64_t num_nodes = 0;
  std::span<const int64_t> table;
};

/// Writes the row of each of `ids` to `rows`, of the same size. Throws ArgumentError for a node
/// without a row.
void find_rows(std::span<const int64_t> ids, const RowMap& map, std::span<int64_t> rows);

/// Counts the ids of each range: range k ends before ends[k], where range k + 1 begins. `ends` do
/// not fall. Throws ArgumentError unless `ids` are grouped by range, in the order of the ranges.
std::vector<int64_t> count_by_range(std::span<const int64_t> ids, std::span<const int64_t> ends);

}  // namespace lsm
