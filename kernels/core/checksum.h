// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/core/hash.h"

namespace lsm {

/// A 64-bit checksum of `bytes` bytes (a multiple of 64) at `data`, that started at `seed`. Each of
/// eight independent sums takes every eighth word by a bijection of its state, so that a change of
/// a single word always shows, and a core sums faster than disks write.
inline uint64_t checksum64(const std::byte* data, size_t bytes, uint64_t seed) {
  constexpr size_t kLanes = 8;
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  uint64_t lanes[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = mix64(seed + lane + 1);
  for (size_t at = 0; at + sizeof(lanes) <= bytes; at += sizeof(lanes)) {
    uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof(words));
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = std::rotl(lanes[lane] ^ words[lane], 29) * kOdd;
    }
  }
  uint64_t sum = bytes;
  for (uint64_t lane : lanes) sum = mix64(sum ^ lane);
  return sum;
}

}  // namespace lsm
