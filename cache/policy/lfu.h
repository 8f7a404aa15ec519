// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LFU: least frequently used since insertion, ties to the least recent (in-cache LFU: eviction
// loses the count). Batch-synchrony: an iteration counts once per line, because an id is requested
// once per iteration.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

struct Lfu : PolicyDefaults {
  using Line = cache::Line<1>;  // word 0: hits since insertion

  LSM_HOST_DEVICE void on_hit(Line& line) const { ++line.word[0]; }
  LSM_HOST_DEVICE uint64_t key(const Line& line, const Turn&) const {
    return uint64_t{line.word[0]} << 32 | line.touched;
  }
};

}  // namespace lsm::cache
