// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lsm {

/// As lsm/core/limits.py has it.
constexpr int kMostThreads = 1024;

/// Runs loops on a fixed set of threads. The caller takes part in its own loop, so that any number
/// of callers, also from inside a loop, can share one pool without waiting for each other's work.
class ThreadPool {
 public:
  /// `num_threads` counts the caller: 1 starts no thread. Throws ThreadError if one cannot be
  /// started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls body(begin, end) over disjoint ranges of at most `grain` that cover [0, size); returns
  /// when all are done. The first exception of a range is rethrown after the others finished.
  void parallel_for(int64_t size, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

 private:
  struct Loop;
  void work();
  void stop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Loop>> loops_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lsm
