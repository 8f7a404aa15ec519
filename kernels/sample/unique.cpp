// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/unique.h"

namespace lsm {

int64_t unique_relabel(std::span<const int64_t> ids, int64_t* unique, int64_t* inverse) {
  IdTable<int64_t> table;
  table.reset(-1);
  const int64_t count = static_cast<int64_t>(ids.size());
  table.reserve(count, unique);
  for (int64_t begin = 0; begin < count; begin += table.kWindow) {
    const int64_t end = std::min(begin + table.kWindow, count);
    for (int64_t i = begin; i < end; ++i) table.prefetch(ids[i]);
    for (int64_t i = begin; i < end; ++i) inverse[i] = table.insert(ids[i], unique + table.size());
  }
  return table.size();
}

}  // namespace lsm
