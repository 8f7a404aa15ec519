// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/scatter.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/gather/check_rows.h"
#include "kernels/gather/copy_rows.h"

namespace lsm {

int64_t check_scatter(const RowArray& source, std::span<const int32_t> source_rows,
                      const RowArray& target, std::span<const int32_t> target_rows) {
  const auto count = static_cast<int64_t>(std::max(source_rows.size(), target_rows.size()));
  check_argument(
      source_rows.empty() || target_rows.empty() || source_rows.size() == target_rows.size(),
      "source_rows, target_rows: expected the same length, got ", source_rows.size(), " and ",
      target_rows.size());
  check_argument(!source_rows.empty() || count <= source.num_rows, "source: expected at least ",
                 count, " rows, got ", source.num_rows);
  check_argument(!target_rows.empty() || count <= target.num_rows, "target: expected at least ",
                 count, " rows, got ", target.num_rows);
  check_rows("source_rows", source_rows, source.num_rows);
  check_rows("target_rows", target_rows, target.num_rows);
  return count;
}

void scatter_rows(const RowArray& source, std::span<const int32_t> source_rows,
                  const RowArray& target, std::span<const int32_t> target_rows, int64_t row_bytes,
                  ThreadPool& pool) {
  const int64_t count = check_scatter(source, source_rows, target, target_rows);
  const auto row_of = [row_bytes](const RowArray& array, std::span<const int32_t> rows) {
    return
        [=](int64_t k) { return array.data + (rows.empty() ? k : int64_t{rows[k]}) * row_bytes; };
  };
  copy_rows(count, row_bytes, row_of(source, source_rows), row_of(target, target_rows), pool);
}

}  // namespace lsm
