// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lsm {

/// The files of rows [first_row, first_row + num_rows), of several file sets with rows of one size.
struct FileSet {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_file = 0;
  int64_t num_files = 1;
};

/// The layout of rows: row r is the bytes [r * row_bytes, (r + 1) * row_bytes) of a logical file.
/// Its pages of `stripe_bytes` are dealt round robin to `num_files` files: page p is page p /
/// num_files of file p % num_files. With one file there is no striping.
///
/// Rows of several file sets are numbered through, and so are their files. Each set has a logical
/// file of its own. `file_sets`, in the order of rows and files: empty for one set.
struct RowLayout {
  int64_t num_rows = 0;
  int64_t row_bytes = 0;
  int64_t stripe_bytes = 4096;
  int64_t num_files = 1;
  std::vector<FileSet> file_sets = {};

  /// The layout of sets of (rows, files).
  static RowLayout of_sets(const std::vector<std::pair<int64_t, int64_t>>& sets, int64_t row_bytes,
                           int64_t stripe_bytes) {
    RowLayout layout{0, row_bytes, stripe_bytes, 0};
    if (sets.size() == 1) return {sets[0].first, row_bytes, stripe_bytes, sets[0].second};
    for (const auto& [num_rows, num_files] : sets) {
      layout.file_sets.push_back({layout.num_rows, num_rows, layout.num_files, num_files});
      layout.num_rows += num_rows;
      layout.num_files += num_files;
    }
    return layout;
  }

  int64_t total_bytes() const { return num_rows * row_bytes; }

  /// Bytes of file `file` that rows occupy; the file itself may be longer, never shorter.
  int64_t file_bytes(int64_t file) const {
    const FileSet set =
        find_set([=](const FileSet& each) { return file < each.first_file + each.num_files; });
    const int64_t set_bytes = set.num_rows * row_bytes;
    if (set.num_files == 1) return set_bytes;
    const int64_t full_rounds = set_bytes / (stripe_bytes * set.num_files);
    const int64_t rest = set_bytes - full_rounds * stripe_bytes * set.num_files;
    return full_rounds * stripe_bytes +
           std::clamp(rest - (file - set.first_file) * stripe_bytes, int64_t{0}, stripe_bytes);
  }

  /// Calls visit(file, file_offset, length, offset_in_row) for the runs that make up row `row`.
  template <class Visit>
  void for_each_run(int64_t row, Visit&& visit) const {
    if (num_files == 1) {
      visit(int64_t{0}, row * row_bytes, row_bytes, int64_t{0});
      return;
    }
    const FileSet set =
        find_set([=](const FileSet& each) { return row < each.first_row + each.num_rows; });
    const int64_t begin = (row - set.first_row) * row_bytes;
    if (set.num_files == 1) {
      visit(set.first_file, begin, row_bytes, int64_t{0});
      return;
    }
    int64_t done = 0;
    while (done < row_bytes) {
      const int64_t logical = begin + done;
      const int64_t page = logical / stripe_bytes;
      const int64_t in_page = logical - page * stripe_bytes;
      const int64_t length = std::min(stripe_bytes - in_page, row_bytes - done);
      visit(set.first_file + page % set.num_files, page / set.num_files * stripe_bytes + in_page,
            length, done);
      done += length;
    }
  }

 private:
  /// The first set for which `holds` is true.
  template <class Holds>
  FileSet find_set(const Holds& holds) const {
    for (const FileSet& set : file_sets) {
      if (holds(set)) return set;
    }
    return {0, num_rows, 0, num_files};
  }
};

}  // namespace lsm
