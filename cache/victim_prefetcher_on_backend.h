// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Prefetches rows from the victim buffer (LSM-GNN, section 5.2): while a step trains, a thread of
// the host copies the rows that the next plan needs to a buffer on the GPU. We differ in two
// points: the thread first gathers the rows in page-locked memory, so that one cudaMemcpyAsync
// moves them all, and there is one buffer for the next plan instead of a queue for each of p
// iterations.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "cache/gpu_executor.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/core/start_thread.h"

namespace lsm {

/// Order: the thread waits on the host for the event behind the last replay, which wrote the slots;
/// the next replay waits in its stream for the event behind the copies, and writes slots only
/// after it has read them. start(), finish() and mark_replayed() are for one thread.
template <class Backend>
class VictimPrefetcherOnBackend {
 public:
  /// `replays`: the backend whose stream replays plans. `copies`: a backend with a stream of its
  /// own.
  VictimPrefetcherOnBackend(std::unique_ptr<Backend> copies, Backend& replays,
                            const GpuExecutorOptions& options, int64_t row_bytes)
      : copies_(std::move(copies)),
        replays_(replays),
        capacity_(options.prefetch_rows),
        timeout_secs_(options.timeout_secs),
        row_bytes_(row_bytes) {
    copies_->enter();
    rows_.assign(capacity_ * row_bytes, 0);
    gathered_.assign(capacity_ * row_bytes);
    copies_->synchronize();
    if (capacity_ > 0) thread_ = start_thread([this] { run(); });
  }

  ~VictimPrefetcherOnBackend() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    copies_->drain();  // the last copy may still read the gathered rows
  }
  VictimPrefetcherOnBackend(const VictimPrefetcherOnBackend&) = delete;
  VictimPrefetcherOnBackend& operator=(const VictimPrefetcherOnBackend&) = delete;

  const std::byte* rows() const { return rows_.data(); }

  /// Must be called after the last copy of each replay is queued.
  void mark_replayed() { replays_.record(replayed_); }

  void start(std::span<const int64_t> slots, const std::byte* victims) {
    if (capacity_ == 0 || slots.empty()) return;
    {
      std::unique_lock lock(mutex_);
      wait_for_thread(lock);
      slots_.assign(slots.begin(), slots.end());
      slots_.resize(std::min(slots_.size(), static_cast<size_t>(capacity_)));
      victims_ = victims;
      is_due_ = has_rows_ = true;
    }
    changed_.notify_all();
  }

  /// Makes the following replay wait for the copies. Returns the number of the plan's victims, the
  /// first ones, that are in rows(). `victim_slots`: of all of them, in the order of their
  /// positions.
  int64_t finish(std::span<const int64_t> victim_slots) {
    std::unique_lock lock(mutex_);
    wait_for_thread(lock);
    if (!has_rows_) return 0;
    has_rows_ = false;
    replays_.block(copied_);
    return count_matching(victim_slots);
  }

 private:
  using Event = typename Backend::Event;

  /// Number of gathered rows that are this plan's own.
  int64_t count_matching(std::span<const int64_t> victim_slots) const {
    const size_t count = std::min(slots_.size(), victim_slots.size());
    const bool is_same =
        std::ranges::equal(std::span(slots_).first(count), victim_slots.first(count));
    return is_same ? static_cast<int64_t>(count) : 0;
  }

  void wait_for_thread(std::unique_lock<std::mutex>& lock) {
    const std::chrono::duration<double> timeout(2 * timeout_secs_);  // the thread's own time-out
                                                                     // comes first
    if (!changed_.wait_for(lock, timeout, [&] { return !is_due_; })) {
      throw TimeoutError(concat("the rows of the victim buffer were not prefetched within ",
                                timeout.count(), " s"));
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_due_ || stopping_; });
      if (stopping_) return;
      lock.unlock();
      std::exception_ptr error;
      try {
        copy();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      has_rows_ = has_rows_ && !error;
      is_due_ = false;
      changed_.notify_all();
    }
  }

  void copy() {
    copies_->enter();
    // The previous copy may still read the gathered rows; the replay wrote the slots.
    copies_->wait(copied_, "the copy of prefetched rows");
    copies_->wait(replayed_, "the replay before a prefetch");
    for (size_t i = 0; i < slots_.size(); ++i) {
      std::memcpy(gathered_.data() + i * row_bytes_, victims_ + slots_[i] * row_bytes_, row_bytes_);
    }
    copies_->copy(rows_.data(), gathered_.data(), slots_.size() * row_bytes_);
    copies_->record(copied_);
  }

  const std::unique_ptr<Backend> copies_;
  Backend& replays_;
  const int64_t capacity_;
  const double timeout_secs_;
  const int64_t row_bytes_;
  BackendArray<std::byte, Backend> rows_{*copies_};
  PinnedBytes<Backend> gathered_{*copies_};
  Event replayed_{*copies_};
  Event copied_{*copies_};

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_; slots_ and victims_ are the thread's while is_due_.
  std::vector<int64_t> slots_;
  const std::byte* victims_ = nullptr;
  bool is_due_ = false;
  bool has_rows_ = false;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace lsm
