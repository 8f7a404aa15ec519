// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gather.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/gather/copy_rows.h"

namespace lsm {

void gather_rows(const std::byte* source, int64_t row_bytes, std::span<const int64_t> ids,
                 std::byte* out, ThreadPool& pool) {
  copy_rows(
      static_cast<int64_t>(ids.size()), row_bytes,
      [=](int64_t i) { return source + ids[i] * row_bytes; },
      [=](int64_t i) { return out + i * row_bytes; }, pool);
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
