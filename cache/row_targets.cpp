// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/row_targets.h"

#include "kernels/core/check.h"
#include "kernels/gather/check_rows.h"

namespace lsm {

void check_targets(std::span<const RowTargets> targets, int64_t num_positions) {
  for (const RowTargets& list : targets) {
    const auto count = static_cast<int64_t>(list.row_of.size());
    check_rows("targets, row_of", list.row_of, num_positions);
    check_rows("targets, place", list.place, list.num_rows);
    check_argument(list.place.empty() || list.place.size() == list.row_of.size(),
                   "targets, place: expected none or ", count, ", got ", list.place.size());
    check_argument(!list.place.empty() || count <= list.num_rows, "targets, rows: expected ", count,
                   " rows, got ", list.num_rows);
  }
}

}  // namespace lsm
