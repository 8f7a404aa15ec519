// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/row_map.h"

#include "kernels/core/check.h"

namespace lsm {

void find_rows(std::span<const int64_t> ids, const RowMap& map, std::span<int64_t> rows) {
  check_argument(rows.size() == ids.size(), "rows: expected ", ids.size(), ", got ", rows.size());
  check_argument(map.table.empty() || static_cast<int64_t>(map.table.size()) == map.num_nodes,
                 "table: expected ", map.num_nodes, " rows, got ", map.table.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t place = ids[i] - map.first;
    if (place < 0 || place >= map.num_nodes) [[unlikely]] {
      throw ArgumentError(concat("ids: expected ids in [", map.first, ", ",
                                 map.first + map.num_nodes, "), got ", ids[i], " at position ", i));
    }
    rows[i] = map.table.empty() ? place : map.table[static_cast<size_t>(place)];
  }
}

std::vector<int64_t> count_by_range(std::span<const int64_t> ids, std::span<const int64_t> ends) {
  std::vector<int64_t> counts(ends.size());
  size_t range = 0;
  int64_t begin = 0;  // of the range
  for (size_t i = 0; i < ids.size(); ++i) {
    while (range < ends.size() && ids[i] >= ends[range]) begin = ends[range++];
    if (range == ends.size() || ids[i] < begin) [[unlikely]] {
      throw ArgumentError(concat("ids: expected ids in [0, ", ends.empty() ? 0 : ends.back(),
                                 "), grouped by node type in the order of the types, got ", ids[i],
                                 " at position ", i));
    }
    ++counts[range];
  }
  return counts;
}

}  // namespace lsm
