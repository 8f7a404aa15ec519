// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gather.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/prefetch.h"

namespace lsm {
namespace {

constexpr int64_t kLineBytes = 64;
// Rows are random, so every row starts with a miss. This many bytes in flight per thread cover
// the latency of memory; more would push each other out of the first-level cache.
constexpr int64_t kBytesAhead = 8192;
constexpr int64_t kMaxRowsAhead = 32;
// Beyond its first lines, a long row is a stream that the hardware prefetcher follows by itself.
constexpr int64_t kMaxLinesPerRow = 32;
constexpr int64_t kGrainBytes = 256 << 10;

LSM_ONLY_PREFETCHES void prefetch_row(const std::byte* row, int64_t row_bytes) {
  const int64_t bytes = std::min(row_bytes, kMaxLinesPerRow * kLineBytes);
  for (int64_t offset = 0; offset < bytes; offset += kLineBytes) __builtin_prefetch(row + offset);
}

}  // namespace

void gather_rows(const std::byte* source, int64_t row_bytes, std::span<const int64_t> ids,
                 std::byte* out, ThreadPool& pool) {
  if (row_bytes == 0) return;
  const int64_t rows_ahead = std::clamp<int64_t>(kBytesAhead / row_bytes, 1, kMaxRowsAhead);
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / row_bytes);
  pool.parallel_for(static_cast<int64_t>(ids.size()), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < std::min(begin + rows_ahead, end); ++i) {
      prefetch_row(source + ids[i] * row_bytes, row_bytes);
    }
    for (int64_t i = begin; i < end; ++i) {
      if (i + rows_ahead < end) prefetch_row(source + ids[i + rows_ahead] * row_bytes, row_bytes);
      std::memcpy(out + i * row_bytes, source + ids[i] * row_bytes, row_bytes);
    }
  });
}

void check_ids(const char* name, std::span<const int64_t> ids, int64_t bound) {
  bool in_range = true;  // no early exit: this way the loop is vectorised
  for (const int64_t id : ids) in_range &= static_cast<uint64_t>(id) < static_cast<uint64_t>(bound);
  if (in_range) return;
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [bound](int64_t id) { return id < 0 || id >= bound; });
  throw ArgumentError(concat(name, ": expected ids in [0, ", bound, "), got ", *bad,
                             " at position ", bad - ids.begin()));
}

}  // namespace lsm
