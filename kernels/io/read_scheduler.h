// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Coalesces the reads of several iterations. The misses of all iterations in flight are known
// together. Sorted by offset over all of them they make fewer and longer reads: a block that two
// iterations need is read once, and rows near each other share a read.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/io/storage.h"

namespace lsm {

class ReadScheduler;

/// A read that a scheduler has collected, or submitted. Its destructor cancels it, after which
/// nothing uses the memory of the read any more.
class ScheduledRead {
 public:
  ScheduledRead(std::shared_ptr<ReadScheduler> scheduler, std::shared_ptr<Storage> storage,
                const RowRead& read);
  ~ScheduledRead();
  ScheduledRead(const ScheduledRead&) = delete;
  ScheduledRead& operator=(const ScheduledRead&) = delete;

  /// Submits all collected reads if this is one of them. Throws the error of its submission, and as
  /// Request::wait(). Blocks until the rows have arrived.
  void wait(double timeout_secs);
  /// True once every row has arrived, or an error.
  bool done() const;
  bool is_submitted() const { return state_.load(std::memory_order_acquire) == State::kSubmitted; }

 private:
  friend class ReadScheduler;
  enum class State : uint8_t { kCollected, kSubmitted, kFailed };

  const std::shared_ptr<ReadScheduler> scheduler_;
  const std::weak_ptr<Storage> storage_;  // whoever closes it does not wait for collected reads
  const RowRead read_;
  std::atomic<State> state_{State::kCollected};
  std::shared_ptr<Request> request_;  // once submitted
  std::exception_ptr error_;          // once failed
};

/// Collects reads of any number of storages and submits them in one wave: as soon as it has
/// collected `wave` of them, or someone waits for one. Thread-safe.
class ReadScheduler : public std::enable_shared_from_this<ReadScheduler> {
 public:
  explicit ReadScheduler(int64_t wave);

  /// Submits a read, possibly later. Its memory must stay valid as long as the result. Throws the
  /// error of the submission if the read is a wave of its own. Does not block, except for
  /// synchronous engines.
  std::unique_ptr<ScheduledRead> submit(std::shared_ptr<Storage> storage, const RowRead& read);

  /// Sets the number of reads of a wave. Collected reads stay so until the next submit().
  void set_wave(int64_t wave);
  bool has_collected() const { return num_collected_.load(std::memory_order_relaxed) > 0; }
  /// Submits all collected reads.
  void flush();

 private:
  friend class ScheduledRead;

  void submit_collected();
  void submit_of(Storage* storage, const std::vector<ScheduledRead*>& reads);
  void forget(const ScheduledRead* read);

  std::mutex mutex_;
  int64_t wave_;
  std::vector<ScheduledRead*> collected_;
  std::atomic<size_t> num_collected_{0};
};

}  // namespace lsm
