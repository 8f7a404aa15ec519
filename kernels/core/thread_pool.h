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

/// The limit of lsm/core/limits.py.
constexpr int kMostThreads = 1024;

/// Runs loops on a fixed set of threads. The caller takes part in its own loop, so any number of
/// callers, even from inside a loop, share one pool without waiting for each other's work.
class ThreadPool {
 public:
  /// `num_threads` counts the caller: 1 starts no thread. Throws ThreadError if one cannot be
  /// started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls body(begin, end) over disjoint ranges of at most `grain` that cover [0, size). Rethrows
  /// the first exception of a range after the others have ended. Blocks until all have.
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
