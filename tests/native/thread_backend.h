// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A backend whose items, and whose lanes, are threads: between two steps of a warp, and between two
// items of a launch, everything really happens at the same time. So the thread sanitizer reports
// what would race in a kernel.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "kernels/core/host_backend.h"

namespace lsm::testing {

/// As std::barrier, whose threads yield before they sleep, and so wait for time slices of other
/// processes on a busy machine: 254 s in place of 36 s beside three of them.
class Barrier {
 public:
  explicit Barrier(int num_threads) : num_threads_(num_threads), missing_(num_threads) {}

  void arrive_and_wait() {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      missing_.store(num_threads_, std::memory_order_relaxed);
      phase_.fetch_add(1, std::memory_order_release);
      futex(FUTEX_WAKE_PRIVATE, INT_MAX);
    }
    while (phase_.load(std::memory_order_acquire) == phase) futex(FUTEX_WAIT_PRIVATE, phase);
  }

 private:
  void futex(int operation, uint32_t value) {
    static_assert(sizeof(phase_) == sizeof(uint32_t));
    syscall(SYS_futex, &phase_, operation, value, nullptr, nullptr, 0);
  }

  const int num_threads_;
  std::atomic<int> missing_;
  std::atomic<uint32_t> phase_{0};
};

/// One lane of a warp of threads; see GpuWarp.
class ThreadLanes {
 public:
  static constexpr int kLanes = 4;

  struct Warp {
    Barrier barrier{kLanes};
    uint64_t words[kLanes] = {};
  };

  template <class T>
  class Var {
   public:
    T& operator[](int) { return value_; }
    const T& operator[](int) const { return value_; }

   private:
    T value_{};
  };

  ThreadLanes(Warp& warp, int lane) : warp_(warp), lane_(lane) {}

  template <class Body>
  void each(const Body& body) const {
    warp_.barrier.arrive_and_wait();
    body(lane_);
    warp_.barrier.arrive_and_wait();
  }

  uint64_t min(const Var<uint64_t>& values) const {
    share(values[0]);
    const uint64_t lowest = *std::min_element(warp_.words, warp_.words + kLanes);
    warp_.barrier.arrive_and_wait();
    return lowest;
  }

  int32_t get(const Var<int32_t>& values, int lane) const {
    share(static_cast<uint64_t>(values[0]));
    const int32_t value = static_cast<int32_t>(warp_.words[lane]);
    warp_.barrier.arrive_and_wait();
    return value;
  }

  template <class FromOf>
  Var<uint64_t> shuffle(const Var<uint64_t>& values, const FromOf& from_of) const {
    share(values[0]);
    Var<uint64_t> shuffled;
    shuffled[0] = warp_.words[from_of(lane_)];
    warp_.barrier.arrive_and_wait();
    return shuffled;
  }

  int first(const Var<bool>& votes) const {
    share(votes[0] ? 1 : 0);
    const auto* const found = std::find(warp_.words, warp_.words + kLanes, 1u);
    warp_.barrier.arrive_and_wait();
    return found == warp_.words + kLanes ? -1 : static_cast<int>(found - warp_.words);
  }

  int64_t sum_before(Var<int64_t>& values) const {
    share(static_cast<uint64_t>(values[0]));
    const uint64_t before = std::accumulate(warp_.words, warp_.words + lane_, uint64_t{0});
    const uint64_t sum = std::accumulate(warp_.words, warp_.words + kLanes, uint64_t{0});
    warp_.barrier.arrive_and_wait();
    values[0] = static_cast<int64_t>(before);
    return static_cast<int64_t>(sum);
  }

 private:
  void share(uint64_t word) const {
    warp_.words[lane_] = word;
    warp_.barrier.arrive_and_wait();
  }

  Warp& warp_;
  const int lane_;
};

/// Threads that wait for work: under the thread sanitizer most of the time of a launch would be
/// that of starting threads.
class Crew {
 public:
  static constexpr int kThreads = 8;

  Crew() {
    for (int thread = 0; thread < kThreads; ++thread) {
      threads_.emplace_back([this, thread] { serve(thread); });
    }
  }

  ~Crew() {
    work_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  /// Calls work(0) to work(kThreads - 1), each on a thread of its own, and waits for all of them.
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    start_.arrive_and_wait();
    end_.arrive_and_wait();
  }

 private:
  void serve(int thread) {
    for (;;) {
      start_.arrive_and_wait();
      if (work_ == nullptr) return;
      (*work_)(thread);
      end_.arrive_and_wait();
    }
  }

  Barrier start_{kThreads + 1}, end_{kThreads + 1};
  const std::function<void(int)>* work_ = nullptr;
  std::vector<std::thread> threads_;
};

class ThreadBackend : public HostBackend {
 public:
  using Warp = ThreadLanes;

  template <class F>
  void for_each(int64_t count, const F& f) {
    crew().run([&](int thread) {
      for (int64_t i = thread; i < count; i += Crew::kThreads) f(i);
    });
  }

  template <class F>
  void for_each_warp(int64_t count, const F& f) {
    constexpr int kWarps = Crew::kThreads / ThreadLanes::kLanes;
    ThreadLanes::Warp warps[kWarps];
    crew().run([&](int thread) {
      const int warp = thread / ThreadLanes::kLanes;
      const ThreadLanes lanes(warps[warp], thread % ThreadLanes::kLanes);
      for (int64_t i = warp; i < count; i += kWarps) f(lanes, i);
    });
  }

 private:
  /// Each thread that launches has its own: launches of two threads share no barrier, which would
  /// order them for the sanitizer.
  static Crew& crew() {
    thread_local Crew crew;
    return crew;
  }
};

}  // namespace lsm::testing
