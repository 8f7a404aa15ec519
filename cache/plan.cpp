// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/plan.h"

#include <utility>

namespace lsm::cache {

void Plan::list() {
  if (on_gpu == nullptr || is_listed_) return;
  is_listed_ = true;
  GpuMoves::Listed listed = on_gpu->list();
  slot = std::move(listed.slot);
  add_moves(listed.line.size(), [&](size_t i) {
    return Move{listed.position[i], listed.line[i], listed.evicts[i] != 0};
  });
}

}  // namespace lsm::cache
