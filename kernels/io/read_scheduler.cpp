// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/read_scheduler.h"

#include <stdexcept>
#include <utility>

#include "kernels/core/check.h"

namespace lsm {

ScheduledRead::ScheduledRead(std::shared_ptr<ReadScheduler> scheduler,
                             std::shared_ptr<Storage> storage, const RowRead& read)
    : scheduler_(std::move(scheduler)), storage_(std::move(storage)), read_(read) {}

ScheduledRead::~ScheduledRead() {
  scheduler_->forget(this);
  if (request_) request_->cancel();
}

void ScheduledRead::wait(double timeout_secs) {
  if (state_.load(std::memory_order_acquire) == State::kCollected) scheduler_->flush();
  if (!is_submitted()) std::rethrow_exception(error_);
  request_->wait(timeout_secs);
}

bool ScheduledRead::done() const {
  const State state = state_.load(std::memory_order_acquire);
  return state == State::kFailed || (state == State::kSubmitted && request_->done());
}

ReadScheduler::ReadScheduler(int64_t wave) : wave_(wave) {
  check_argument(wave >= 1, "merge_iterations: expected at least 1, got ", wave);
}

std::unique_ptr<ScheduledRead> ReadScheduler::submit(std::shared_ptr<Storage> storage,
                                                     const RowRead& read) {
  auto scheduled = std::make_unique<ScheduledRead>(shared_from_this(), std::move(storage), read);
  bool is_alone = false;
  {
    const std::lock_guard lock(mutex_);
    collected_.push_back(scheduled.get());
    num_collected_ = collected_.size();
    is_alone = collected_.size() == 1;
    if (static_cast<int64_t>(collected_.size()) >= wave_) submit_collected();
  }
  const bool has_failed = scheduled->done() && !scheduled->is_submitted();
  if (is_alone && has_failed) std::rethrow_exception(scheduled->error_);
  return scheduled;
}

void ReadScheduler::set_wave(int64_t wave) {
  const std::lock_guard lock(mutex_);
  wave_ = wave;
}

void ReadScheduler::flush() {
  const std::lock_guard lock(mutex_);
  submit_collected();
}

/// Under the lock: whoever waits for one of these reads finds it submitted.
void ReadScheduler::submit_collected() {
  std::vector<ScheduledRead*> rest = std::exchange(collected_, {});
  num_collected_ = 0;
  while (!rest.empty()) {
    const std::shared_ptr<Storage> storage = rest.front()->storage_.lock();
    std::vector<ScheduledRead*> same, others;
    for (ScheduledRead* read : rest) {
      (read->storage_.lock() == storage ? same : others).push_back(read);
    }
    submit_of(storage.get(), same);
    rest = std::move(others);
  }
}

/// storage: null if it is closed.
void ReadScheduler::submit_of(Storage* storage, const std::vector<ScheduledRead*>& reads) {
  try {
    if (storage == nullptr) throw std::runtime_error("the storage engine is closed");
    std::vector<RowRead> wanted;
    wanted.reserve(reads.size());
    for (const ScheduledRead* read : reads) wanted.push_back(read->read_);
    Storage::Requests requests = storage->submit(wanted);
    for (size_t i = 0; i < reads.size(); ++i) {
      reads[i]->request_ = std::move(requests[i]);
      reads[i]->state_.store(ScheduledRead::State::kSubmitted, std::memory_order_release);
    }
  } catch (...) {
    for (ScheduledRead* read : reads) {
      read->error_ = std::current_exception();
      read->state_.store(ScheduledRead::State::kFailed, std::memory_order_release);
    }
  }
}

/// Waits for a submission in progress, which reads the memory of its reads.
void ReadScheduler::forget(const ScheduledRead* read) {
  const std::lock_guard lock(mutex_);
  std::erase(collected_, read);
  num_collected_ = collected_.size();
}

}  // namespace lsm
