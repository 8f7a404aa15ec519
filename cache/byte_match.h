// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Compares eight one-byte fingerprints at once, in a 64-bit word: most slots of a hash table only
// have to be ruled out.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace lsm::cache {

static_assert(std::endian::native == std::endian::little, "the first byte is the lowest");

inline uint64_t load_bytes(const void* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

/// Marks the bytes of `word` that equal `byte`. Bytes above an equal one may be marked wrongly, so
/// the caller confirms each match. The lowest mark is exact.
inline uint64_t match_byte(uint64_t word, uint8_t byte) {
  const uint64_t difference = word ^ (byte * 0x0101010101010101ULL);
  return (difference - 0x0101010101010101ULL) & ~difference & 0x8080808080808080ULL;
}

/// Index of the lowest marked byte.
inline int32_t first_match(uint64_t matches) {
  return std::countr_zero(matches) / 8;
}

}  // namespace lsm::cache
