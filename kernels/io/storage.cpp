// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/storage.h"

#include "kernels/core/check.h"
#include "kernels/gather/gather.h"

namespace lsm {

void Storage::check(const RowRead& read, size_t out_bytes) const {
  check_ids("ids", read.rows, layout_.num_rows);
  const auto row_bytes = static_cast<size_t>(layout_.row_bytes);
  if (read.positions.empty()) {
    const size_t expected = read.rows.size() * row_bytes;
    check_argument(read.rows.empty() || out_bytes == expected, "out: expected ", expected,
                   " bytes (", read.rows.size(), " rows of ", row_bytes, "), got ", out_bytes);
    return;
  }
  check_argument(read.positions.size() == read.rows.size(), "positions: expected ",
                 read.rows.size(), ", one per id, got ", read.positions.size());
  check_argument(out_bytes % row_bytes == 0, "out: expected a multiple of ", row_bytes,
                 " bytes (whole rows), got ", out_bytes);
  check_ids("positions", read.positions, static_cast<int64_t>(out_bytes / row_bytes));
}

Storage::Requests Storage::submit(std::span<const RowRead> reads) {
  for (const RowRead& read : reads) check(read, read.output.size());
  for (const RowRead& read : reads) {
    const auto num_rows = static_cast<int64_t>(read.rows.size());
    stats_.requests.fetch_add(1, std::memory_order_relaxed);
    stats_.rows.fetch_add(num_rows, std::memory_order_relaxed);
    stats_.bytes_requested.fetch_add(num_rows * layout_.row_bytes, std::memory_order_relaxed);
  }
  return reads.empty() ? Requests{} : start(reads);
}

std::vector<Piece> Storage::contiguous_reads(const RowRead& read, size_t out_bytes,
                                             int64_t max_read_bytes) const {
  check(read, out_bytes);
  return plan_contiguous_reads(read, layout_, max_read_bytes);
}

}  // namespace lsm
