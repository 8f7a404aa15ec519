// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/draw_simd.h"

#include "kernels/sample/philox_simd.h"

namespace lsm {

LSM_VECTOR_CLONES
void draw_simd(DrawSimd& lanes, uint32_t count, uint64_t key, uint32_t hop) {
  constexpr int kLanes = DrawSimd::kLanes;
  static_assert(kLanes == kPhiloxSimdLanes);
  for (int l = 0; l < kLanes; ++l) lanes.uncertain[l] = 0;
  for (uint32_t first = 0; first < count; first += 4) {
    PhiloxSimd block;
    for (int l = 0; l < kLanes; ++l) {
      block.word[0][l] = lanes.id_low[l];
      block.word[1][l] = lanes.id_high[l];
      block.word[2][l] = hop;
      block.word[3][l] = first / 4;
    }
    philox_simd(block, key);
    for (uint32_t w = 0; w < 4 && first + w < count; ++w) {
      const uint32_t i = first + w;
      alignas(64) uint32_t candidate[kLanes];
      alignas(64) uint32_t taken[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        const uint32_t bound = lanes.degree[l] - count + i + 1;
        const uint64_t product = uint64_t{block.word[w][l]} * bound;
        candidate[l] = static_cast<uint32_t>(product >> 32);
        lanes.uncertain[l] |= static_cast<uint32_t>(product) < bound;
        taken[l] = 0;
      }
      for (uint32_t j = 0; j < i; ++j) {
        for (int l = 0; l < kLanes; ++l) {
          taken[l] |= -static_cast<uint32_t>(lanes.positions[j][l] == candidate[l]);
        }
      }
      for (int l = 0; l < kLanes; ++l) {
        const uint32_t last = lanes.degree[l] - count + i;
        lanes.positions[i][l] = (candidate[l] & ~taken[l]) | (last & taken[l]);
      }
    }
  }
}

}  // namespace lsm
