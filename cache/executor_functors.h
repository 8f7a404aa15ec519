// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Sources and destinations of the kernels that copy the rows of a plan.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "kernels/core/macros.h"

namespace lsm {

/// The rows of a batch in their tiers, as CopyRows reads them.
struct TierRows {
  static constexpr int kNumTiers = 7;  // RowSource, and last: prefetched, scratch
  static constexpr uint8_t kPrefetched = 5;
  static constexpr uint8_t kScratch = 6;

  const std::byte* tier[kNumTiers];  // kStorage: the staged rows, or null if they are in place
  const uint8_t* tier_of;            // [n]
  const int64_t* slot;               // [n]
  std::byte* out;
  int64_t row_bytes;

  LSM_HOST_DEVICE const std::byte* source(int64_t i) const {
    assert(tier_of[i] < kNumTiers && slot[i] >= 0);
    const std::byte* const rows = tier[tier_of[i]];
    return rows == nullptr ? nullptr : rows + slot[i] * row_bytes;
  }
  LSM_HOST_DEVICE std::byte* target(int64_t i) const { return out + i * row_bytes; }
};

/// The copies of such rows for targets, one target after the other.
struct WantedRows {
  TierRows rows;
  const int32_t* row_of;    // [n]
  const int32_t* place;     // [n]
  const int64_t* starts;    // [num_targets]: where each target's copies start
  std::byte* const* bases;  // [num_targets]
  int64_t num_targets;

  LSM_HOST_DEVICE const std::byte* source(int64_t k) const { return rows.source(row_of[k]); }
  LSM_HOST_DEVICE std::byte* target(int64_t k) const {
    int64_t low = 0;
    for (int64_t high = num_targets; high - low > 1;) {  // the last that starts at k or before
      const int64_t middle = (low + high) / 2;
      (starts[middle] <= k ? low : high) = middle;
    }
    return bases[low] + place[k] * rows.row_bytes;
  }
};

}  // namespace lsm
