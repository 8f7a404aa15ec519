// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Locks and waits that the thread sanitizer does not see: it is to know of the order that CUDA
// gives (order.h), not of the one that the runtime happens to have.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace emulated {

inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  // Bounded, so that whoever looks again sees what it missed.
  const timespec most{0, 20'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &most, nullptr, 0);
}
inline void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

class Lock {
 public:
  void lock() {
    while (word_.exchange(1, std::memory_order_acquire) != 0) futex_wait(word_, 1);
  }
  void unlock() {
    word_.store(0, std::memory_order_release);
    futex_wake(word_);
  }

 private:
  std::atomic<uint32_t> word_{0};
};

/// A change to wait for: wait_until(condition) tests the condition again after every notify().
class Change {
 public:
  void notify() {
    count_.fetch_add(1, std::memory_order_acq_rel);
    futex_wake(count_);
  }
  template <class Condition>
  void wait_until(const Condition& condition) {
    for (;;) {
      const uint32_t seen = count_.load(std::memory_order_acquire);
      if (condition()) return;
      futex_wait(count_, seen);
    }
  }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace emulated
