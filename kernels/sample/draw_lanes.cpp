// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Loops over lanes are plain C++ that the compiler turns into vector instructions; it does so once
// for each of the instruction sets below, and the loader picks.
#include "kernels/sample/draw_lanes.h"

// The loader of glibc can pick; others cannot. It picks before the thread sanitizer's library is
// ready, which the picking would call.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
#define LSM_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LSM_VECTOR_CLONES
#endif

namespace lsm {
namespace {

constexpr int kLanes = DrawLanes::kLanes;

struct PhiloxLanes {
  alignas(64) uint32_t word[4][kLanes];
};

/// philox4x32 in every lane, round by round: so written, compilers see the 32 x 32 -> 64 bit
/// products that the vector units have.
[[gnu::always_inline]] inline void philox_lanes(PhiloxLanes& counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  auto& x = counter.word;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kLanes; ++l) {
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

}  // namespace

LSM_VECTOR_CLONES
void draw_lanes(DrawLanes& lanes, uint32_t count, uint64_t key, uint32_t hop) {
  for (int l = 0; l < kLanes; ++l) lanes.uncertain[l] = 0;
  for (uint32_t first = 0; first < count; first += 4) {
    PhiloxLanes block;
    for (int l = 0; l < kLanes; ++l) {
      block.word[0][l] = lanes.id_low[l];
      block.word[1][l] = lanes.id_high[l];
      block.word[2][l] = hop;
      block.word[3][l] = first / 4;
    }
    philox_lanes(block, key);
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
