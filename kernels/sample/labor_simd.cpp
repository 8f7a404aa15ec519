// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/labor_simd.h"

#include <algorithm>

#include "kernels/sample/philox_simd.h"

namespace lsm {
namespace {

constexpr int kLanes = kPhiloxSimdLanes;

/// The low words of a, or of b where the mask is all ones.
[[gnu::always_inline]] inline uint32_t select(uint64_t a, uint64_t b, uint32_t mask) {
  return (static_cast<uint32_t>(a) & ~mask) | (static_cast<uint32_t>(b) & mask);
}

template <class Id>
[[gnu::always_inline]] inline void draw_block(const SourceDraws& draws, const Id* ids,
                                              uint32_t* out) {
  Philox2x32Lanes block;
  for (int l = 0; l < kLanes; ++l) {
    const uint64_t id = static_cast<uint64_t>(ids[l]);
    const uint32_t low = static_cast<uint32_t>(id);
    const uint32_t high = static_cast<uint32_t>(id >> 32);
    const uint32_t is_next = draws.period == 1 ? 0 : -draws.generation_of(low, high);
    const uint32_t key_low = select(draws.keys[0], draws.keys[1], is_next);
    const uint32_t key_high = select(draws.keys[0] >> 32, draws.keys[1] >> 32, is_next);
    block.word[0][l] = low;
    block.word[1][l] = high ^ key_high;
    block.key[l] = key_low;
  }
  philox2x32_lanes(block);
  for (int l = 0; l < kLanes; ++l) out[l] = block.word[0][l];
}

template <class Id>
[[gnu::always_inline]] inline void draw_all(const SourceDraws& draws, const Id* ids, int64_t count,
                                            uint32_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) draw_block(draws, ids + i, out + i);
  if (i == count) return;
  Id last[kLanes] = {};
  uint32_t drawn[kLanes];
  std::copy(ids + i, ids + count, last);
  draw_block(draws, last, drawn);
  std::copy_n(drawn, count - i, out + i);
}

}  // namespace

LSM_VECTOR_CLONES
void labor_draws(const SourceDraws& draws, const int32_t* ids, int64_t count, uint32_t* out) {
  draw_all(draws, ids, count, out);
}

LSM_VECTOR_CLONES
void labor_draws(const SourceDraws& draws, const int64_t* ids, int64_t count, uint32_t* out) {
  draw_all(draws, ids, count, out);
}

LSM_VECTOR_CLONES
void rank_draws(const uint32_t* draws, int count, uint32_t* ranks) {
  for (int i = 0; i < count; i += kLanes) {
    uint32_t smaller[kLanes] = {};
    for (int j = 0; j < count; ++j) {
      for (int l = 0; l < kLanes; ++l) smaller[l] += draws[j] < draws[i + l];
    }
    for (int l = 0; l < kLanes; ++l) ranks[i + l] = smaller[l];
  }
}

}  // namespace lsm
