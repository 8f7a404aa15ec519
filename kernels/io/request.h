// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "kernels/io/read_plan.h"

namespace lsm {

/// One submitted request: a plan, where its rows go, and how far it is. Workers complete its
/// extents in any order; one caller waits. Once wait() has returned or thrown, and once cancel()
/// has returned, nothing writes to the output any more.
class Request {
 public:
  Request(ReadPlan plan, std::byte* output, std::string description);

  const ReadPlan& plan() const { return plan_; }
  const std::string& description() const { return description_; }

  /// The next extent that no worker has taken, or -1. Called under the queue's lock.
  int64_t take_extent();

  /// Copies an extent's pieces from `data`, which holds the extent's bytes, to the output.
  void complete(const Extent& extent, const std::byte* data);
  /// Ends an extent without data. The first error is what wait() throws.
  void fail(std::exception_ptr error);

  /// Returns when every extent is complete. Throws the first error of an extent; TimeoutError,
  /// naming the request and how many reads are missing, after `timeout_secs`.
  void wait(double timeout_secs);
  bool done() const { return remaining_.load(std::memory_order_acquire) == 0; }
  /// Drops the interest in the output: later completions are discarded.
  void cancel();
  bool cancelled() const { return cancelled_.load(); }

 private:
  void finish_one();

  const ReadPlan plan_;
  std::byte* const output_;
  const std::string description_;
  size_t next_extent_ = 0;

  std::atomic<int64_t> remaining_;
  std::atomic<int> copying_{0};
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
};

}  // namespace lsm
