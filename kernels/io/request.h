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

class Request;

/// A copy of a piece's bytes to its place, announced by Request::begin().
struct PieceCopy {
  const std::byte* from;
  std::byte* to;
  uint32_t bytes;
  Request* request;
};

/// One submitted request: the destination of its rows, and its progress. Workers deliver its pieces
/// in any order; one caller waits. After wait() has returned or thrown, or cancel() has returned,
/// nothing writes to the output any more.
class Request {
 public:
  Request(std::byte* output, std::string description, bool on_gpu = false);

  const std::string& description() const { return description_; }
  /// True if the output is memory of a GPU.
  bool on_gpu() const { return on_gpu_; }

  /// Sets the number of pieces. Must precede the delivery of any.
  void expect(int64_t num_pieces) { num_pieces_ = num_pieces, remaining_.store(num_pieces); }

  /// Copies a piece's bytes from `data` to the output.
  void deliver(const Piece& piece, const std::byte* data);
  /// The same for a caller that copies: announces the copy, and returns its target. Null if the
  /// request was cancelled, which ends the piece. Otherwise end() or fail_copy() must follow.
  std::byte* begin(const Piece& piece);
  void end();
  void fail_copy(const std::exception_ptr& error);
  /// Ends a piece without data. wait() throws the first error.
  void fail(std::exception_ptr error);

  /// Throws the first error; after `timeout_secs` TimeoutError with the request and the number of
  /// missing pieces. Blocks until every piece has arrived.
  void wait(double timeout_secs);
  bool done() const { return remaining_.load(std::memory_order_acquire) == 0; }
  /// Cancels the request: later deliveries are discarded.
  void cancel();
  bool cancelled() const { return cancelled_.load(); }

 private:
  void finish_one();

  std::byte* const output_;
  const std::string description_;
  const bool on_gpu_;
  int64_t num_pieces_ = 0;

  std::atomic<int64_t> remaining_{0};
  std::atomic<int> copying_{0};
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
};

}  // namespace lsm
