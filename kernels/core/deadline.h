// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

namespace lsm {

/// The end of a wait.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                 std::chrono::duration<double>(seconds))) {}

  bool passed() const { return std::chrono::steady_clock::now() >= end_; }

 private:
  std::chrono::steady_clock::time_point end_;
};

/// The pause of a polling loop: none at first, because the event may be a microsecond away, then it
/// yields, then it sleeps.
class Backoff {
 public:
  void pause() {
    ++looks_;
    if (looks_ < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (looks_ < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void reset() { looks_ = 0; }

 private:
  static constexpr unsigned kSpins = 256;
  static constexpr unsigned kYields = 256;
  unsigned looks_ = 0;
};

}  // namespace lsm
