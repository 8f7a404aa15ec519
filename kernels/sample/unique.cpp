// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/unique.h"

namespace lsm {

int64_t unique_relabel(std::span<const int64_t> ids, int64_t* unique, int64_t* inverse) {
  IdTable<int64_t> table;
  table.reset(-1);
  const int64_t count = static_cast<int64_t>(ids.size());
  table.reserve(count, unique);
  for (int64_t begin = 0; begin < count; begin += table.kWindow) {
    const auto window = ids.subspan(begin, std::min(table.kWindow, count - begin));
    table.prefetch(window);
    table.relabel(window, inverse + begin, unique);
  }
  return table.size();
}

}  // namespace lsm
