// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/io/row_layout.h"

namespace lsm {

/// The rows of one request: rows[i] goes to row positions[i] of `output`, or to row i if
/// `positions` is empty. Rows in any order, repeats allowed.
struct RowRead {
  std::span<const int64_t> rows;
  std::span<const int64_t> positions;
  std::span<std::byte> output;
  bool on_gpu = false;  // output is memory of Storage::gpu()
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

/// The rule that coalesces runs into reads.
struct MergeRule {
  int64_t block_bytes;     // unit of a read's offset and length
  int64_t max_read_bytes;  // longest read, a multiple of the block, of at least two
  int64_t max_gap_bytes;   // longest run of unrequested bytes within a read
};

/// The reads that bring the rows of all `requests` to their outputs, in order of offset over all of
/// them. Runs that share a block, are adjacent, or lie no further apart than the gap are coalesced
/// into one read, up to the longest. Longer rows take several reads.
ReadPlan plan_reads(std::span<const RowRead> requests, const RowLayout& layout,
                    const MergeRule& rule);

/// The reads that bring the rows of `request` straight to its output, ordered by (file, offset).
/// Runs that are adjacent in a file and in the output are one read, of at most `max_read_bytes`.
std::vector<Piece> plan_contiguous_reads(const RowRead& request, const RowLayout& layout,
                                         int64_t max_read_bytes);

}  // namespace lsm
