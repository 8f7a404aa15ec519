// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/core/prefetch.h"
#include "kernels/core/thread_pool.h"

namespace lsm {
namespace copy_rows_detail {

inline constexpr int64_t kLineBytes = 64;
// Rows are random, so every row starts with a cache miss. This many bytes in flight per thread hide
// the latency of memory; more would evict each other from the first-level cache.
inline constexpr int64_t kBytesAhead = 8192;
inline constexpr int64_t kMaxRowsAhead = 32;
// Beyond its first cache lines, a long row is a stream that the hardware prefetcher follows by
// itself.
inline constexpr int64_t kMaxLinesPerRow = 32;
inline constexpr int64_t kGrainBytes = 256 << 10;

LSM_ONLY_PREFETCHES void prefetch_row(const std::byte* row, int64_t row_bytes) {
  const int64_t bytes = std::min(row_bytes, kMaxLinesPerRow * kLineBytes);
  for (int64_t offset = 0; offset < bytes; offset += kLineBytes) __builtin_prefetch(row + offset);
}

}  // namespace copy_rows_detail

/// Copies `row_bytes` bytes from source(i) to target(i) for i in [0, count), in any order and on
/// the threads of `pool`; a null source(i) copies nothing. Precondition: the rows exist, and no
/// target overlaps another target or a source. Blocks until done.
template <class Source, class Target>
void copy_rows(int64_t count, int64_t row_bytes, const Source& source, const Target& target,
               ThreadPool& pool) {
  using namespace copy_rows_detail;
  if (row_bytes == 0) return;
  const int64_t rows_ahead = std::clamp<int64_t>(kBytesAhead / row_bytes, 1, kMaxRowsAhead);
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / row_bytes);
  const auto prefetch = [&](int64_t i) {
    if (const std::byte* row = source(i)) prefetch_row(row, row_bytes);
  };
  pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(begin + rows_ahead, end); ++i) prefetch(i);
    for (int64_t i = begin; i < end; ++i) {
      if (i + rows_ahead < end) prefetch(i + rows_ahead);
      if (const std::byte* row = source(i)) std::memcpy(target(i), row, row_bytes);
    }
  });
}

}  // namespace lsm
