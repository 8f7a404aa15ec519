// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The word that travels with a row in the victim buffer (LSM-GNN, section 4.3.3): 16 bits of next
// use, 8 bits of rank, 40 bits of position in the batch.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/macros.h"

namespace lsm::cache {

inline constexpr int64_t kMaxWindow = (int64_t{1} << 16) - 1;
inline constexpr int64_t kMaxWorldSize = int64_t{1} << 8;
inline constexpr int64_t kMaxBatchRows = int64_t{1} << 40;

/// The word of a row whose next use is not known. No row is at its position: batches have fewer
/// than kMaxBatchRows.
inline constexpr uint64_t kUnknownUse = ~uint64_t{0};

/// The fields of a metadata word. It keeps only the low 16 bits of the next use, which identify a
/// coming iteration in a window of at most kMaxWindow iterations.
struct RowMetadata {
  uint64_t next_use;
  uint64_t rank;
  uint64_t position;
};

LSM_HOST_DEVICE constexpr uint64_t pack_metadata(const RowMetadata& row) {
  return (row.next_use & 0xFFFF) << 48 | row.rank << 40 | row.position;
}

/// The fields of `word`, read at iteration t < next use <= t + kMaxWindow.
LSM_HOST_DEVICE constexpr RowMetadata unpack_metadata(uint64_t word, uint64_t t) {
  const uint64_t ahead = ((word >> 48) - t) & 0xFFFF;
  return {t + ahead, word >> 40 & 0xFF, word & (static_cast<uint64_t>(kMaxBatchRows) - 1)};
}

/// Throws ArgumentError unless the word has room for every row of such a run.
inline void check_metadata_limits(int64_t window, int64_t world_size, int64_t batch_rows) {
  check_argument(window <= kMaxWindow, "cache.window: expected at most ", kMaxWindow,
                 " iterations (16 bits of a row's metadata), got ", window);
  check_argument(world_size >= 1 && world_size <= kMaxWorldSize, "world size: expected 1 to ",
                 kMaxWorldSize, " ranks (8 bits of a row's metadata), got ", world_size);
  check_argument(batch_rows >= 0 && batch_rows < kMaxBatchRows,
                 "batch: expected fewer than 2^40 rows (40 bits of a row's metadata), got ",
                 batch_rows);
}

}  // namespace lsm::cache
