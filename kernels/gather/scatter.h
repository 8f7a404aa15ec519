// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// Rows of `row_bytes` bytes, one after the other.
struct RowArray {
  std::byte* data;
  int64_t num_rows;
};

/// The number of rows that scatter_rows() copies for these lists. Throws as it does.
int64_t check_scatter(const RowArray& source, std::span<const int32_t> source_rows,
                      const RowArray& target, std::span<const int32_t> target_rows);

/// Copies row source_rows[k] of `source` to row target_rows[k] of `target`; no target row twice.
/// An empty list means row k itself. So one call packs rows to send, reassembles received rows in
/// request order, or does both at once in a peer's memory. Throws ArgumentError, before anything is
/// copied, for a row that does not exist.
void scatter_rows(const RowArray& source, std::span<const int32_t> source_rows,
                  const RowArray& target, std::span<const int32_t> target_rows, int64_t row_bytes,
                  ThreadPool& pool);

}  // namespace lsm
