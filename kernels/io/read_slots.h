// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace lsm {

// One spare slot per this many slots of the depth.
constexpr size_t kSlotsPerSpare = 4;

/// Slots, each with a buffer, of a ring or queue that keeps `depth` reads in flight. The read of a
/// spare slot is submitted before the rows of completed reads are copied out, so that the drive
/// does not wait for the copies.
constexpr size_t num_read_slots(size_t depth) {
  return depth + std::max<size_t>(1, depth / kSlotsPerSpare);
}

}  // namespace lsm
