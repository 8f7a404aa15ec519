// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace lsm {

/// The layout of rows: row r is the bytes [r * row_bytes, (r + 1) * row_bytes) of a logical file.
/// Its pages of `stripe_bytes` are dealt round robin to `num_files` files: page p is page p /
/// num_files of file p % num_files. With one file there is no striping.
struct RowLayout {
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
  int64_t stripe_bytes = 4096;
  int64_t num_files = 1;

  int64_t total_bytes() const { return num_rows * row_bytes; }

  /// Bytes of file `file` that rows occupy; the file itself may be longer, never shorter.
  int64_t file_bytes(int64_t file) const {
    if (num_files == 1) return total_bytes();
    const int64_t full_rounds = total_bytes() / (stripe_bytes * num_files);
    const int64_t rest = total_bytes() - full_rounds * stripe_bytes * num_files;
    return full_rounds * stripe_bytes +
           std::clamp(rest - file * stripe_bytes, int64_t{0}, stripe_bytes);
  }

  /// Calls visit(file, file_offset, length, offset_in_row) for the runs that make up row `row`.
  template <class Visit>
  void for_each_run(int64_t row, Visit&& visit) const {
    if (num_files == 1) {
      visit(int64_t{0}, row * row_bytes, row_bytes, int64_t{0});
      return;
    }
    int64_t done = 0;
    while (done < row_bytes) {
      const int64_t logical = row * row_bytes + done;
      const int64_t page = logical / stripe_bytes;
      const int64_t in_page = logical - page * stripe_bytes;
      const int64_t length = std::min(stripe_bytes - in_page, row_bytes - done);
      visit(page % num_files, page / num_files * stripe_bytes + in_page, length, done);
      done += length;
    }
  }
};

}  // namespace lsm
