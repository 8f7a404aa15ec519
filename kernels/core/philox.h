// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random
// numbers as a pure function of a key and a counter, the same on host and device.
#pragma once

#include <cstdint>

#include "kernels/core/hash.h"
#include "kernels/core/macros.h"

namespace lsm {

struct Philox4x32 {
  uint32_t word[4];
};

/// Ten Philox rounds over `counter` under the 64-bit `key`.
LSM_HOST_DEVICE constexpr Philox4x32 philox4x32(Philox4x32 counter, uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

struct Philox2x32 {
  uint32_t word[2];
};

/// Ten Philox rounds over a `counter` half as wide, at half the cost.
LSM_HOST_DEVICE constexpr Philox2x32 philox2x32(Philox2x32 counter, uint32_t key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product = uint64_t{0xD256D193u} * counter.word[0];
    counter = {{static_cast<uint32_t>(product >> 32) ^ key ^ counter.word[1],
                static_cast<uint32_t>(product)}};
    key += 0x9E3779B9u;
  }
  return counter;
}

/// A stream of 32-bit words for one (key, id, lane): block b of the stream is
/// philox4x32({id low, id high, lane, b}, key).
class PhiloxStream {
 public:
  LSM_HOST_DEVICE PhiloxStream(uint64_t key, uint64_t id, uint32_t lane)
      : key_(key), id_(id), lane_(lane) {}

  LSM_HOST_DEVICE uint32_t next() {
    if (used_ == 4) {
      block_ = philox4x32(
          {{static_cast<uint32_t>(id_), static_cast<uint32_t>(id_ >> 32), lane_, next_block_++}},
          key_);
      used_ = 0;
    }
    return block_.word[used_++];
  }

  /// Uniform in [0, bound), exactly (Lemire 2019: multiply, reject the short first interval).
  LSM_HOST_DEVICE uint32_t below(uint32_t bound) {
    uint64_t product = uint64_t{next()} * bound;
    if (static_cast<uint32_t>(product) < bound) {
      const uint32_t threshold = -bound % bound;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next()} * bound;
    }
    return static_cast<uint32_t>(product >> 32);
  }

 private:
  uint64_t key_;
  uint64_t id_;
  uint32_t lane_;
  uint32_t next_block_ = 0;
  int used_ = 4;
  Philox4x32 block_{};
};

/// The key of one batch: a function of (seed, epoch, iteration, rank) and of nothing else.
LSM_HOST_DEVICE constexpr uint64_t batch_key(uint64_t seed, uint64_t epoch, uint64_t iteration,
                                             uint64_t rank) {
  uint64_t key = mix64(seed + 0x9E3779B97F4A7C15ULL);
  key = mix64(key ^ (epoch + 0x9E3779B97F4A7C15ULL));
  key = mix64(key ^ (iteration + 0xBF58476D1CE4E5B9ULL));
  return mix64(key ^ (rank + 0x94D049BB133111EBULL));
}

}  // namespace lsm
