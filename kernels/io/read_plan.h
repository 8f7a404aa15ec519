// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/io/row_layout.h"

namespace lsm {

/// A run of bytes of one file that goes to one place of the destination.
struct Piece {
  int64_t file_offset;
  int64_t destination;  // byte offset into the request's output
  uint32_t length;
  uint32_t file;
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

/// The reads that bring rows `rows` (any order, repeats allowed) to rows `positions` of an output,
/// one per row, or to consecutive rows if `positions` is empty.
/// Runs that touch the same or adjacent blocks share an extent, up to `max_read_bytes`, which is a
/// multiple of `block_bytes`. Rows longer than that are read in several extents.
ReadPlan plan_reads(std::span<const int64_t> rows, std::span<const int64_t> positions,
                    const RowLayout& layout, int64_t block_bytes, int64_t max_read_bytes);

}  // namespace lsm
