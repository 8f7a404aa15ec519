// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/gather_embeddings.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/core/prefetch.h"

namespace lsm {
namespace {

constexpr int64_t kGrain = 64;  // rows a thread takes at once
constexpr int64_t kAhead = 6;   // rows prefetched
constexpr int64_t kFloatsPerLine = 16;

LSM_ONLY_PREFETCHES void prefetch(const float* row, int64_t count) {
  for (int64_t i = 0; i < count; i += kFloatsPerLine) __builtin_prefetch(row + i);
}

}  // namespace

void gather_embeddings(const FloatRows& table, std::span<const int64_t> ids, float* out,
                       ThreadPool& pool) {
  for (const int64_t id : ids) {
    check_argument(id >= 0 && id < table.num_rows, "ids: expected ids in [0, ", table.num_rows,
                   "), got ", id);
  }
  const auto row = [&](int64_t i) { return table.data + ids[i] * table.stride; };
  const auto count = static_cast<int64_t>(ids.size());
  pool.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < count) prefetch(row(i + kAhead), table.dim);
      std::copy_n(row(i), table.dim, out + i * table.dim);
    }
  });
}

}  // namespace lsm
