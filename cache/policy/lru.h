// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LRU: least recently used. Batch-synchrony: all uses within an iteration are equally recent; ties
// go to the lowest way.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct Lru : PolicyDefaults {
  using Line = cache::Line<1>;

  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const { return line.touched; }
};

}  // namespace lsm::cache
