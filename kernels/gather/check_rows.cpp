// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/check_rows.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace lsm {

void check_rows(const char* name, std::span<const int32_t> rows, int64_t bound) {
  bool in_range = true;  // no early exit: this way the loop is vectorised
  for (const int32_t row : rows) in_range &= row >= 0 && row < bound;
  if (in_range) return;
  const auto bad = std::find_if(rows.begin(), rows.end(),
                                [bound](int32_t row) { return row < 0 || row >= bound; });
  throw ArgumentError(concat(name, ": expected rows 0 to ", bound - 1, ", got ", *bad,
                             " at position ", bad - rows.begin()));
}

}  // namespace lsm
