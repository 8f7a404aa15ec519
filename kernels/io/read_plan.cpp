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

void add_pieces(const RowRead& request, uint16_t index, const RowLayout& layout,
                int64_t max_read_bytes, std::vector<Piece>& pieces) {
  for (size_t i = 0; i < request.rows.size(); ++i) {
    const int64_t position =
        request.positions.empty() ? static_cast<int64_t>(i) : request.positions[i];
    const int64_t start = position * layout.row_bytes;
    layout.for_each_run(request.rows[i], [&](int64_t file, int64_t offset, int64_t length,
                                             int64_t in_row) {
      // Cutting at multiples of max_read_bytes keeps every piece's blocks within one extent.
      while (length > 0) {
        const int64_t cut = (offset / max_read_bytes + 1) * max_read_bytes;
        const int64_t part = length > max_read_bytes / 2 ? std::min(length, cut - offset) : length;
        pieces.push_back({offset, start + in_row, static_cast<uint32_t>(part),
                          static_cast<uint16_t>(file), index});
        offset += part;
        in_row += part;
        length -= part;
      }
    });
  }
}

std::vector<Piece> make_pieces(std::span<const RowRead> requests, const RowLayout& layout,
                               int64_t max_read_bytes) {
  constexpr size_t kMaxIndex = std::numeric_limits<uint16_t>::max();
  check_argument(requests.size() <= kMaxIndex, "too many requests together: ", requests.size());
  size_t num_rows = 0;
  for (const RowRead& request : requests) num_rows += request.rows.size();
  std::vector<Piece> pieces;
  pieces.reserve(num_rows);
  for (size_t i = 0; i < requests.size(); ++i) {
    add_pieces(requests[i], static_cast<uint16_t>(i), layout, max_read_bytes, pieces);
  }
  check_argument(pieces.size() < std::numeric_limits<uint32_t>::max(),
                 "too many rows in one request: ", num_rows);
  if (!std::is_sorted(pieces.begin(), pieces.end(), in_disk_order)) {
    std::sort(pieces.begin(), pieces.end(), in_disk_order);
  }
  return pieces;
}

}  // namespace

ReadPlan plan_reads(std::span<const RowRead> requests, const RowLayout& layout,
                    const MergeRule& rule) {
  ReadPlan plan;
  plan.pieces = make_pieces(requests, layout, rule.max_read_bytes);
  for (uint32_t i = 0; i < plan.pieces.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    const int64_t piece_end = piece.file_offset + piece.length;
    const int64_t block_begin = piece.file_offset / rule.block_bytes * rule.block_bytes;
    const int64_t block_end =
        (piece_end + rule.block_bytes - 1) / rule.block_bytes * rule.block_bytes;
    Extent* last = plan.extents.empty() ? nullptr : &plan.extents.back();
    const bool joins = last != nullptr && last->file == piece.file &&
                       block_begin <= last->offset + last->bytes + rule.max_gap_bytes &&
                       block_end - last->offset <= rule.max_read_bytes;
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

std::vector<Piece> plan_contiguous_reads(const RowRead& request, const RowLayout& layout,
                                         int64_t max_read_bytes) {
  std::vector<Piece> reads;
  for (const Piece& piece : make_pieces({&request, 1}, layout, max_read_bytes)) {
    Piece* last = reads.empty() ? nullptr : &reads.back();
    const bool joins = last != nullptr && last->file == piece.file &&
                       last->file_offset + last->length == piece.file_offset &&
                       last->destination + last->length == piece.destination &&
                       int64_t{last->length} + piece.length <= max_read_bytes;
    if (joins) {
      last->length += piece.length;
    } else {
      reads.push_back(piece);
    }
  }
  return reads;
}

}  // namespace lsm
