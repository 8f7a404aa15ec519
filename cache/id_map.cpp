// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/id_map.h"

#include "kernels/core/check.h"

namespace lsm::cache {

IdMap index_ids(const char* name, std::span<const int64_t> ids) {
  IdMap map;
  map.reset(static_cast<int64_t>(ids.size()));
  for (size_t i = 0; i < ids.size(); ++i) {
    check_argument(ids[i] >= 0, name, ": expected ids >= 0, got ", ids[i], " at position ", i);
    check_argument(map.insert(ids[i], static_cast<int64_t>(i)), name,
                   ": expected distinct ids, got ", ids[i], " again at position ", i);
  }
  return map;
}

}  // namespace lsm::cache
