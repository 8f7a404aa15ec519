// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Queues within a set, as sequence numbers on the lines: policies that were published with linked
// lists need no links where a set is scanned anyway.
#pragma once

#include "cache/policy/line.h"

namespace lsm::cache {

/// The way with the lowest sequence number >= `from` among those for which `eligible(way)` is true,
/// or -1. `sequence_of(way)` is unique within a set.
template <class Sequence, class Eligible>
LSM_HOST_DEVICE int32_t oldest_way(int32_t ways, uint32_t from, const Sequence& sequence_of,
                                   const Eligible& eligible) {
  int32_t oldest = -1;
  for (int32_t way = 0; way < ways; ++way) {
    if (sequence_of(way) < from || !eligible(way)) continue;
    if (oldest < 0 || sequence_of(way) < sequence_of(oldest)) oldest = way;
  }
  return oldest;
}

}  // namespace lsm::cache
