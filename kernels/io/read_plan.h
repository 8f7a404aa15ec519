// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/io/row_layout.h"

namespace lsm {

/// Rows that one request asks for: rows[i] goes to row positions[i] of `output`, or to row i if
/// `positions` is empty. Rows in any order, repeats allowed.
struct RowRead {
  std::span<const int64_t> rows;
  std::span<const int64_t> positions;
  std::span<std::byte> output;
};

/// A run of bytes of one file that goes to one place of one request's output.
struct Piece {
  int64_t file_offset;
  int64_t destination;  // byte offset into the request's output
  uint32_t length;
  uint16_t file;
  uint16_t request;
};

/// One read: `bytes` at `offset` of `file`, both multiples of the block, covering the pieces
/// [first_piece, last_piece). `needed` bytes must arrive; the rest is padding to the block.
struct Extent {
  int64_t offset;
  uint32_t bytes;
  uint32_t needed;
  uint32_t file;
  uint32_t first_piece;
  uint32_t last_piece;
};

struct ReadPlan {
  std::vector<Piece> pieces;  // ordered by (file, offset)
  std::vector<Extent> extents;
};

/// What decides which runs share a read.
struct MergeRule {
  int64_t block_bytes;     // unit of a read's offset and length
  int64_t max_read_bytes;  // longest read, a multiple of the block, of at least two
  int64_t max_gap_bytes;   // bytes that nobody asked for, read rather than starting another read
};

/// The reads that bring the rows of all `requests` to their outputs, over all of them in order of
/// offset: runs that share a block, are adjacent, or lie no further apart than the gap become one
/// read, up to the longest. Rows longer than that are read in several.
ReadPlan plan_reads(std::span<const RowRead> requests, const RowLayout& layout,
                    const MergeRule& rule);

}  // namespace lsm
