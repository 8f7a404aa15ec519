// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Compares sixteen one-byte fingerprints at once: most slots of a hash table only have to be ruled
// out, and a branch for each, or for each few of them, would often be predicted wrongly.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lsm::cache {

inline constexpr int32_t kMatchedBytes = 16;

/// The bytes that equal `byte`, of eight: bit i for bytes[i].
inline uint32_t match_eight(const uint8_t* bytes, uint8_t byte) {
  static_assert(std::endian::native == std::endian::little, "the first byte is the lowest");
  constexpr uint64_t kLow = 0x7F7F7F7F7F7F7F7FULL;
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  word ^= byte * 0x0101010101010101ULL;
  const uint64_t equal = ~(((word & kLow) + kLow) | word | kLow) >> 7;  // a 1 in each equal byte
  return static_cast<uint32_t>(equal * 0x0102040810204080ULL >> 56);    // gathers them
}

/// The bytes that equal `byte`, of kMatchedBytes: bit i for bytes[i].
inline uint32_t match_bytes(const uint8_t* bytes, uint8_t byte) {
#if defined(__SSE2__)
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i equal = _mm_cmpeq_epi8(words, _mm_set1_epi8(static_cast<char>(byte)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal));
#else
  return match_eight(bytes, byte) | match_eight(bytes + 8, byte) << 8;
#endif
}

}  // namespace lsm::cache
