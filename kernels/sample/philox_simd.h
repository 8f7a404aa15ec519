// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Philox for several counters at once, one per SIMD lane, for functions that are marked with
// LSM_VECTOR_CLONES.
#pragma once

#include <cstdint>

#include "kernels/core/vector_clones.h"

namespace lsm {

inline constexpr int kPhiloxSimdLanes = 16;

struct PhiloxSimd {
  alignas(64) uint32_t word[4][kPhiloxSimdLanes];
};

/// philox4x32 in every lane, round by round, so that compilers recognise the 32 x 32 -> 64 bit
/// products of vector units.
[[gnu::always_inline]] inline void philox_simd(PhiloxSimd& counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  auto& x = counter.word;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kPhiloxSimdLanes; ++l) {
      const uint64_t product0 = uint64_t{0xD2511F53u} * x[0][l];
      const uint64_t product1 = uint64_t{0xCD9E8D57u} * x[2][l];
      const uint32_t high0 = static_cast<uint32_t>(product0 >> 32);
      const uint32_t high1 = static_cast<uint32_t>(product1 >> 32);
      x[0][l] = high1 ^ x[1][l] ^ key0;
      x[1][l] = static_cast<uint32_t>(product1);
      x[2][l] = high0 ^ x[3][l] ^ key1;
      x[3][l] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

struct Philox2x32Lanes {
  alignas(64) uint32_t word[2][kPhiloxSimdLanes];
  alignas(64) uint32_t key[kPhiloxSimdLanes];
};

/// philox2x32 in every lane, each under a key of its own.
[[gnu::always_inline]] inline void philox2x32_lanes(Philox2x32Lanes& counter) {
  auto& x = counter.word;
  uint32_t weyl = 0;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kPhiloxSimdLanes; ++l) {
      const uint64_t product = uint64_t{0xD256D193u} * x[0][l];
      x[0][l] = static_cast<uint32_t>(product >> 32) ^ (counter.key[l] + weyl) ^ x[1][l];
      x[1][l] = static_cast<uint32_t>(product);
    }
    weyl += 0x9E3779B9u;
  }
}

}  // namespace lsm
