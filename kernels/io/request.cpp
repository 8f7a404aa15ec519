// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/request.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/core/check.h"

namespace lsm {

Request::Request(std::byte* output, std::string description, bool on_gpu)
    : output_(output), description_(std::move(description)), on_gpu_(on_gpu) {}

void Request::deliver(const Piece& piece, const std::byte* data) {
  std::byte* const target = begin(piece);
  if (target == nullptr) return;
  std::memcpy(target, data, piece.length);
  end();
}

std::byte* Request::begin(const Piece& piece) {
  // Announce the copy, then look at the flag; cancel() does it in the opposite order. With
  // sequentially consistent accesses one of the two sees the other.
  copying_.fetch_add(1);
  if (!cancelled_.load()) return output_ + piece.destination;
  end();
  return nullptr;
}

void Request::end() {
  copying_.fetch_sub(1);
  finish_one();
}

void Request::fail_copy(const std::exception_ptr& error) {
  copying_.fetch_sub(1);
  fail(error);
}

void Request::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  finish_one();
  changed_.notify_all();
}

void Request::finish_one() {
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Taking the lock orders this notification after a waiter's check of the condition.
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Request::wait(double timeout_secs) {
  std::unique_lock lock(mutex_);
  const bool ended = changed_.wait_for(lock, std::chrono::duration<double>(timeout_secs),
                                       [&] { return done() || error_; });
  if (ended && !error_) return;
  const std::exception_ptr error = error_;
  lock.unlock();
  cancel();
  if (error) std::rethrow_exception(error);
  throw TimeoutError(concat(description_, ": ", remaining_.load(), " of ", num_pieces_,
                            " pieces did not arrive within ", timeout_secs, " s"));
}

void Request::cancel() {
  cancelled_.store(true);
  while (copying_.load() != 0) std::this_thread::yield();
}

}  // namespace lsm
