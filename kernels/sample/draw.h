// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The draw of one node: the in-edges, of `degree`, that a fanout of `count` takes. Uniform without
// replacement by Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", CACM 1987):
// exactly `count` random numbers for any degree, and no state but the taken positions. The
// representation of the taken positions depends on degree and count and never changes the result.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"

namespace lsm {

/// Positions below 64, as bits.
class TakenBits {
 public:
  LSM_HOST_DEVICE bool contains(uint32_t position, uint32_t) const { return bits_ >> position & 1; }
  LSM_HOST_DEVICE void add(uint32_t position) { bits_ |= uint64_t{1} << position; }

 private:
  uint64_t bits_ = 0;
};

/// A few positions, compared one by one.
class TakenList {
 public:
  LSM_HOST_DEVICE explicit TakenList(const uint32_t* positions) : positions_(positions) {}
  LSM_HOST_DEVICE bool contains(uint32_t position, uint32_t count) const {
    bool found = false;  // no early exit: its branch would cost more than the comparisons
    for (uint32_t i = 0; i < count; ++i) found |= positions_[i] == position;
    return found;
  }
  LSM_HOST_DEVICE void add(uint32_t) {}

 private:
  const uint32_t* positions_;
};

/// Many positions, in an open-addressing table in the caller's memory.
class TakenTable {
 public:
  /// `slots`: [num_slots], a power of two, at least twice the number of positions.
  LSM_HOST_DEVICE TakenTable(uint32_t* slots, uint32_t num_slots)
      : slots_(slots), mask_(num_slots - 1) {
    for (uint32_t i = 0; i < num_slots; ++i) slots[i] = kEmpty;
  }
  LSM_HOST_DEVICE bool contains(uint32_t position, uint32_t) const {
    return slots_[find(position)] == position;
  }
  LSM_HOST_DEVICE void add(uint32_t position) { slots_[find(position)] = position; }

 private:
  static constexpr uint32_t kEmpty = 0xffffffffu;  // no position: degrees are below 2^32

  LSM_HOST_DEVICE uint32_t find(uint32_t position) const {
    uint32_t slot = (position * 0x9E3779B9u >> 7) & mask_;
    while (slots_[slot] != kEmpty && slots_[slot] != position) slot = (slot + 1) & mask_;
    return slot;
  }

  uint32_t* slots_;
  uint32_t mask_;
};

/// Writes `count` distinct positions in [0, degree) to `positions`, every subset equally likely.
/// Random is PhiloxStream or an equal source of below(bound).
template <class Random, class Taken>
LSM_HOST_DEVICE void draw_floyd(Random& random, uint32_t degree, uint32_t count, Taken taken,
                                uint32_t* positions) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t last = degree - count + i;
    const uint32_t candidate = random.below(last + 1);
    // Selects by a mask: a branch would often be mispredicted when count is close to degree.
    const uint32_t is_taken = -static_cast<uint32_t>(taken.contains(candidate, i));
    const uint32_t position = (candidate & ~is_taken) | (last & is_taken);
    taken.add(position);
    positions[i] = position;
  }
}

/// From this count on, a table finds a taken position faster than comparisons with each.
constexpr uint32_t kMaxListedPositions = 64;

/// Words of scratch memory that draw_positions needs: 0, or twice `count` rounded up to a power of
/// two.
LSM_HOST_DEVICE constexpr uint32_t draw_scratch_words(uint32_t count) {
  if (count <= kMaxListedPositions) return 0;
  uint32_t words = 1;
  while (words / 2 < count) words *= 2;
  return words;
}

/// As draw_floyd, for 0 <= count < degree < 2^32 and count < 2^30.
template <class Random>
LSM_HOST_DEVICE void draw_positions(Random& random, uint32_t degree, uint32_t count,
                                    uint32_t* scratch, uint32_t* positions) {
  if (degree <= 64) {
    draw_floyd(random, degree, count, TakenBits(), positions);
  } else if (count <= kMaxListedPositions) {
    draw_floyd(random, degree, count, TakenList(positions), positions);
  } else {
    draw_floyd(random, degree, count, TakenTable(scratch, draw_scratch_words(count)), positions);
  }
}

}  // namespace lsm
