// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/victim_prefetcher.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "cache/metadata_word.h"
#include "cache/plan.h"
#include "kernels/core/check.h"
#include "kernels/core/start_thread.h"

namespace lsm {
namespace {

// Bytes copied between two checks for a waiting replay: some tens of microseconds.
constexpr int64_t kBytesAtOnce = 256 << 10;

}  // namespace

VictimPrefetcher::VictimPrefetcher(const Options& options, const std::byte* rows)
    : options_(options), rows_(rows) {
  check_argument(options.iterations >= 0 && options.iterations <= cache::kMaxWindow,
                 "prefetch_iterations: expected 0 to ", cache::kMaxWindow, ", got ",
                 options.iterations);
  if (options.num_slots == 0 || options.iterations == 0) return;
  words_.resize(static_cast<size_t>(options.num_slots));
  thread_ = start_thread([this] { run(); });
}

VictimPrefetcher::~VictimPrefetcher() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void VictimPrefetcher::open(int64_t iteration, const Batch& batch) {
  check_argument(batch.source.size() == batch.slot.size() &&
                     batch.rows.size() == batch.slot.size() * options_.row_bytes,
                 "rows: expected a source, a slot and ", options_.row_bytes,
                 " bytes for each position, got ", batch.source.size(), ", ", batch.slot.size(),
                 " and ", batch.rows.size(), " bytes");
  std::lock_guard lock(mutex_);
  check_argument(iteration > last_, "iteration: expected one after ", last_,
                 ", which was replayed last, got ", iteration);
  if (!thread_.joinable()) return;
  const bool is_new =
      batches_.try_emplace(iteration, batch, 0, std::vector<uint8_t>(batch.slot.size())).second;
  check_argument(is_new, "iteration: ", iteration, " has been opened before");
  wake_.notify_all();
}

void VictimPrefetcher::pause() {
  std::unique_lock lock(mutex_);
  stop_copying(lock);
  if (error_) std::rethrow_exception(error_);
  is_paused_ = true;
}

/// Blocks until no copy is in flight. None starts until the lock is released.
void VictimPrefetcher::stop_copying(std::unique_lock<std::mutex>& lock) {
  is_paused_ = true;  // otherwise the thread might start copies for ever
  const bool is_idle = idle_.wait_for(lock, std::chrono::duration<double>(options_.timeout_secs),
                                      [&] { return !is_copying_; });
  is_paused_ = false;
  if (is_idle) return;
  throw TimeoutError(concat("the thread that prefetches from the victim buffer did not finish a ",
                            "copy within ", options_.timeout_secs, " s"));
}

void VictimPrefetcher::resume() {
  std::lock_guard lock(mutex_);
  is_paused_ = false;
  wake_.notify_all();
}

std::span<const uint8_t> VictimPrefetcher::arrived(int64_t iteration,
                                                   std::span<const std::byte> rows) const {
  std::lock_guard lock(mutex_);
  check_argument(iteration > last_, "iteration: expected one after ", last_,
                 ", which was replayed last, got ", iteration);
  const auto found = batches_.find(iteration);
  if (found == batches_.end()) return {};
  check_argument(found->second.plan.rows.data() == rows.data(),
                 "out: expected the memory that iteration ", iteration, " was opened with");
  return found->second.arrived;
}

void VictimPrefetcher::record(int64_t iteration, std::span<const VictimMoves> moves) {
  std::lock_guard lock(mutex_);
  last_ = iteration;
  if (!thread_.joinable()) return;
  batches_.erase(batches_.begin(), batches_.upper_bound(iteration));
  tagged_.erase(tag_of(iteration));
  for (const VictimMoves& move : moves) {
    for (size_t i = 0; i < move.slot.size(); ++i) {
      if (move.slot[i] < 0) continue;
      const uint64_t word = static_cast<uint64_t>(move.word[i]);
      words_[move.slot[i]] = word;
      if (word == cache::kUnknownUse) continue;
      tagged_[tag_of(static_cast<int64_t>(cache::unpack_metadata(word, iteration).next_use))]
          .push_back(move.slot[i]);
    }
  }
}

void VictimPrefetcher::forget() {
  std::unique_lock lock(mutex_);
  stop_copying(lock);
  error_ = nullptr;
  last_ = -1;
  batches_.clear();
  tagged_.clear();
}

int64_t VictimPrefetcher::num_copied() const {
  std::lock_guard lock(mutex_);
  return num_copied_;
}

void VictimPrefetcher::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    try {
      wake_.wait(lock, [&] { return is_stopping_ || (!is_paused_ && !error_ && collect()); });
      if (is_stopping_) return;
      is_copying_ = true;
      lock.unlock();
      copy();
      lock.lock();
      num_copied_ += static_cast<int64_t>(copies_.size());
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      error_ = std::current_exception();
    }
    is_copying_ = false;
    idle_.notify_all();
  }
}

/// Decides the next copies, nearest iterations first. Returns false if there are none.
bool VictimPrefetcher::collect() {
  copies_.clear();
  for (auto& [iteration, batch] : batches_) {
    if (iteration > last_ + options_.iterations || !copies_.empty()) break;
    const auto slots = tagged_.find(tag_of(iteration));
    if (slots != tagged_.end()) collect_from(iteration, batch, slots->second);
  }
  return !copies_.empty();
}

void VictimPrefetcher::collect_from(int64_t iteration, OpenBatch& batch,
                                    const std::vector<int64_t>& slots) {
  const int64_t num_rows = std::max<int64_t>(1, kBytesAtOnce / options_.row_bytes);
  while (batch.next < slots.size() && static_cast<int64_t>(copies_.size()) < num_rows) {
    const int64_t slot = slots[batch.next++];
    // Another row has replaced it since.
    if (words_[slot] == cache::kUnknownUse) continue;
    const cache::RowMetadata row = cache::unpack_metadata(words_[slot], last_);
    if (static_cast<int64_t>(row.next_use) != iteration) continue;
    if (row.position >= batch.plan.slot.size()) {
      throw std::runtime_error(concat("victim slot ", slot, ": its metadata word names position ",
                                      row.position, " of iteration ", iteration, ", which has ",
                                      batch.plan.slot.size(), " rows"));
    }
    // A row that is still replaced before its turn is read from storage then.
    const bool is_served = batch.plan.source[row.position] == RowSource::kVictim;
    if (!is_served || batch.plan.slot[row.position] != slot) continue;
    if (batch.arrived[row.position]) continue;  // a slot may be tagged with i twice
    batch.arrived[row.position] = 1;            // nobody reads it before the copy has ended
    copies_.push_back({&batch, slot, static_cast<int64_t>(row.position)});
  }
}

void VictimPrefetcher::copy() const {
  for (const Copy& row : copies_) {
    std::memcpy(row.batch->plan.rows.data() + row.position * options_.row_bytes,
                rows_ + row.slot * options_.row_bytes, static_cast<size_t>(options_.row_bytes));
  }
}

}  // namespace lsm
