// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace emulated {

/// Random numbers of one thread; LSM_EMULATED_SEED begins other ones.
class Chance {
 public:
  Chance() {
    static std::atomic<uint64_t> num_threads{0};
    const char* const seed = std::getenv("LSM_EMULATED_SEED");
    state_ = (seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10)) * 0x9E3779B97F4A7C15ULL +
             ++num_threads * 0xBF58476D1CE4E5B9ULL;
  }
  uint32_t below(uint32_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>((state_ >> 33) * bound >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace emulated
