// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Sources and destinations of the kernels that copy the rows of a plan.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "cache/plan.h"
#include "kernels/core/macros.h"

namespace lsm {

/// The rows of a batch in their tiers, as CopyRows reads them.
struct TierRows {
  static constexpr int kNumTiers = 7;  // RowSource, and last: prefetched, scratch
  static constexpr uint8_t kPrefetched = 5;
  static constexpr uint8_t kScratch = 6;

  const std::byte* tier[kNumTiers];  // null: rows that another copy moves, as those of storage
  const uint8_t* tier_of;            // [n]
  const int64_t* slot;               // [n]
  std::byte* out;
  int64_t row_bytes;

  LSM_HOST_DEVICE const std::byte* source(int64_t i) const {
    const uint8_t tier_now = tier_of[i];
    assert(tier_now < kNumTiers);
    if (tier[tier_now] == nullptr) return nullptr;
    assert(slot[i] >= 0);
    return tier[tier_now] + slot[i] * row_bytes;
  }
  LSM_HOST_DEVICE std::byte* target(int64_t i) const { return out + i * row_bytes; }
};

/// Some of such rows, first those from storage, which lie in this order in `staged`.
struct ListedRows {
  TierRows rows;
  const std::byte* staged;
  const uint32_t* position;  // [k]
  int64_t num_staged;

  LSM_HOST_DEVICE const std::byte* source(int64_t j) const {
    return j < num_staged ? staged + j * rows.row_bytes : rows.source(position[j]);
  }
};

/// Those from number `first` on, each to its own place of rows.out.
struct PlacedRows {
  ListedRows listed;
  int64_t first;

  LSM_HOST_DEVICE const std::byte* source(int64_t j) const { return listed.source(first + j); }
  LSM_HOST_DEVICE std::byte* target(int64_t j) const {
    return listed.rows.target(listed.position[first + j]);
  }
};

/// The same, to rows of rows.out by their numbers in the list.
struct CompactRows {
  ListedRows listed;
  int64_t first;

  LSM_HOST_DEVICE const std::byte* source(int64_t j) const { return listed.source(first + j); }
  LSM_HOST_DEVICE std::byte* target(int64_t j) const { return listed.rows.target(first + j); }
};

/// Says that rows are in a tier, in this order.
struct SetTier {
  const uint32_t* position;  // [k]
  uint8_t tier;
  uint8_t* tier_of;  // [n]
  int64_t* slot;     // [n]

  LSM_HOST_DEVICE void operator()(int64_t j) const {
    tier_of[position[j]] = tier;
    slot[position[j]] = j;
  }
};

/// The rows of a batch where moves find them.
struct MovedRows {
  const std::byte* rows;
  const int64_t* place;  // [n] by position: number of the row; null: the position
  int64_t row_bytes;

  LSM_HOST_DEVICE const std::byte* at(uint32_t position) const {
    return rows + (place == nullptr ? int64_t{position} : place[position]) * row_bytes;
  }
};

/// Moves into the victim buffer: of a line's row, or of one that got no line.
struct LeavingRows {
  MovedRows moved;
  const std::byte* lines;
  std::byte* victims;
  const uint32_t* position;  // [k]
  const int64_t* line;       // [k] -1: got none
  const int64_t* slot;       // [k] -1: no move

  LSM_HOST_DEVICE const std::byte* source(int64_t j) const {
    if (slot[j] < 0) return nullptr;
    return line[j] < 0 ? moved.at(position[j]) : lines + line[j] * moved.row_bytes;
  }
  LSM_HOST_DEVICE std::byte* target(int64_t j) const { return victims + slot[j] * moved.row_bytes; }
};

/// Moves into lines.
struct InsertedRows {
  MovedRows moved;
  std::byte* lines;
  const uint32_t* position;  // [k]
  const int64_t* line;       // [k] -1: no move

  LSM_HOST_DEVICE const std::byte* source(int64_t j) const {
    return line[j] < 0 ? nullptr : moved.at(position[j]);
  }
  LSM_HOST_DEVICE std::byte* target(int64_t j) const { return lines + line[j] * moved.row_bytes; }
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
