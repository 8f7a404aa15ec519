// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/read_plan.h"

#include <algorithm>
#include <limits>

#include "kernels/core/check.h"

namespace lsm {
namespace {

bool in_disk_order(const Piece& a, const Piece& b) {
  return a.file != b.file ? a.file < b.file : a.file_offset < b.file_offset;
}

std::vector<Piece> make_pieces(std::span<const int64_t> rows, std::span<const int64_t> positions,
                               const RowLayout& layout, int64_t max_read_bytes) {
  std::vector<Piece> pieces;
  pieces.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t position = positions.empty() ? static_cast<int64_t>(i) : positions[i];
    const int64_t row_start = position * layout.row_bytes;
    layout.for_each_run(rows[i], [&](int64_t file, int64_t offset, int64_t length, int64_t in_row) {
      // Cutting at multiples of max_read_bytes keeps every piece's blocks within one extent.
      while (length > 0) {
        const int64_t cut = (offset / max_read_bytes + 1) * max_read_bytes;
        const int64_t part = length > max_read_bytes / 2 ? std::min(length, cut - offset) : length;
        pieces.push_back(
            {offset, row_start + in_row, static_cast<uint32_t>(part), static_cast<uint32_t>(file)});
        offset += part;
        in_row += part;
        length -= part;
      }
    });
  }
  if (!std::is_sorted(pieces.begin(), pieces.end(), in_disk_order)) {
    std::sort(pieces.begin(), pieces.end(), in_disk_order);
  }
  return pieces;
}

}  // namespace

ReadPlan plan_reads(std::span<const int64_t> rows, std::span<const int64_t> positions,
                    const RowLayout& layout, int64_t block_bytes, int64_t max_read_bytes) {
  check_argument(max_read_bytes >= 2 * block_bytes && max_read_bytes % block_bytes == 0,
                 "max_read_bytes: expected a multiple of ", block_bytes, " of at least two, got ",
                 max_read_bytes);
  ReadPlan plan;
  plan.pieces = make_pieces(rows, positions, layout, max_read_bytes);
  check_argument(plan.pieces.size() < std::numeric_limits<uint32_t>::max(),
                 "too many rows in one request: ", rows.size());
  for (uint32_t i = 0; i < plan.pieces.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    const int64_t piece_end = piece.file_offset + piece.length;
    const int64_t block_begin = piece.file_offset / block_bytes * block_bytes;
    const int64_t block_end = (piece_end + block_bytes - 1) / block_bytes * block_bytes;
    Extent* last = plan.extents.empty() ? nullptr : &plan.extents.back();
    const bool joins = last != nullptr && last->file == piece.file &&
                       block_begin <= last->offset + last->bytes &&
                       block_end - last->offset <= max_read_bytes;
    if (!joins) {
      plan.extents.push_back({block_begin, 0, 0, piece.file, i, i});
      last = &plan.extents.back();
    }
    last->bytes = std::max(last->bytes, static_cast<uint32_t>(block_end - last->offset));
    last->needed = std::max(last->needed, static_cast<uint32_t>(piece_end - last->offset));
    last->last_piece = i + 1;
  }
  return plan;
}

}  // namespace lsm
