// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/victim_buffer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <numeric>

#include "cache/next_use_chain.h"

namespace lsm::cache {
namespace {

/// Sorts by the upper half of each value; values with equal halves keep their order.
void sort_by_upper_half(std::vector<uint64_t>* values, std::vector<uint64_t>* scratch) {
  constexpr int kBits = 11;
  constexpr uint64_t kMask = (1 << kBits) - 1;
  scratch->resize(values->size());
  for (int shift = 32; shift < 64; shift += kBits) {
    std::array<size_t, kMask + 1> starts{};
    for (const uint64_t value : *values) ++starts[value >> shift & kMask];
    if (!values->empty() && starts[values->front() >> shift & kMask] == values->size()) continue;
    std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), size_t{0});
    for (const uint64_t value : *values) (*scratch)[starts[value >> shift & kMask]++] = value;
    values->swap(*scratch);
  }
}

}  // namespace

int64_t SlotAllocator::take() {
  if (num_freed_ == 0) {
    assert(end_ < capacity_);
    freed_.resize(static_cast<size_t>(end_ / 64) + 1);
    return end_++;
  }
  while (freed_[lowest_] == 0) ++lowest_;
  const int bit = std::countr_zero(freed_[lowest_]);
  freed_[lowest_] &= freed_[lowest_] - 1;
  --num_freed_;
  return static_cast<int64_t>(64 * lowest_) + bit;
}

void SlotAllocator::give_back(int64_t slot) {
  const auto word = static_cast<size_t>(slot / 64);
  freed_[word] |= uint64_t{1} << slot % 64;
  lowest_ = std::min(lowest_, word);
  ++num_freed_;
}

VictimBuffer::VictimBuffer(VictimMode mode, int64_t rows, int64_t window)
    : mode_(mode),
      max_rows_(rows),
      slots_(mode == VictimMode::kQueues ? rows * window : rows),
      rows_(mode == VictimMode::kNone ? 0 : window) {}

void VictimBuffer::serve(uint32_t t) {
  if (!is_on()) return;
  std::vector<Row>& due = rows_of(t);
  for (const Row& row : due) slots_.give_back(row.slot);
  due.clear();
}

VictimBuffer::Outcome VictimBuffer::put(std::span<Offer> offers) {
  Outcome outcome;
  if (mode_ == VictimMode::kQueues) {
    refuse_beyond_queues(offers);
  } else {
    const int64_t excess = slots_.num_used() + std::ssize(offers) - max_rows_;
    const int64_t num_unknown = drop_unknown(offers, excess);
    outcome.num_lost = drop_known(offers, excess - num_unknown);
  }
  for (Offer& row : offers) {
    if (row.is_refused) {
      outcome.num_lost += row.next_use != kNoNextUse;
      continue;
    }
    ++outcome.num_entered;
    row.slot = slots_.take();
    if (row.next_use != kNoNextUse) {
      add(row.id, row.next_use, row.position, row.slot);
    } else {
      unknown_.add(row.id, row.rank, row.slot);
    }
  }
  return outcome;
}

void VictimBuffer::refuse_beyond_queues(std::span<Offer> offers) {
  counts_.assign(rows_.size(), 0);
  for (Offer& row : offers) {
    const size_t queue = row.next_use % rows_.size();
    row.is_refused = std::ssize(rows_[queue]) + int64_t{counts_[queue]} == max_rows_;
    counts_[queue] += !row.is_refused;
  }
}

/// Of the rows of unknown next use, refuses or removes the `most` worst ones, or all. Returns their
/// number.
int64_t VictimBuffer::drop_unknown(std::span<Offer> offers, int64_t most) {
  if (most <= 0) return 0;
  ranked_.clear();
  for (size_t i = offers.size(); i-- > 0;) {
    if (offers[i].next_use == kNoNextUse) ranked_.push_back(uint64_t{offers[i].rank} << 32 | i);
  }
  sort_by_upper_half(&ranked_, &scratch_);
  size_t num_refused = 0;
  for (int64_t dropped = 0; dropped < most; ++dropped) {
    const bool has_more = num_refused < ranked_.size();
    const int64_t slot = unknown_.take_below(has_more ? ranked_[num_refused] >> 32 : UINT64_MAX);
    if (slot >= 0) {
      slots_.give_back(slot);
    } else if (has_more) {
      offers[static_cast<uint32_t>(ranked_[num_refused++])].is_refused = true;
    } else {
      return dropped;
    }
  }
  return most;
}

/// Of the rows with a next use, refuses or removes the `count` with the farthest. Returns the
/// number of those removed. Precondition: there are as many.
int64_t VictimBuffer::drop_known(std::span<Offer> offers, int64_t count) {
  if (count <= 0) return 0;
  counts_.assign(rows_.size(), 0);
  uint32_t last = farthest_;
  for (const Offer& row : offers) {
    if (row.next_use == kNoNextUse) continue;
    ++counts_[row.next_use % rows_.size()];
    last = std::max(last, row.next_use);
  }
  int64_t num_removed = 0;
  uint32_t num_offered_kept = 0;  // of those due at `last`
  for (;; --last) {
    std::vector<Row>& rows = rows_of(last);
    const int64_t num_offered = counts_[last % rows_.size()];
    const int64_t from_offered = std::min(count, num_offered);
    const int64_t from_rows = std::min(count - from_offered, std::ssize(rows));
    const auto kept = rows.end() - from_rows;
    if (from_rows > 0 && kept != rows.begin()) {
      std::ranges::nth_element(rows, kept, {}, &Row::slot);
    }
    std::for_each(kept, rows.end(), [&](const Row& row) { slots_.give_back(row.slot); });
    rows.erase(kept, rows.end());
    num_removed += from_rows;
    count -= from_offered + from_rows;
    num_offered_kept = static_cast<uint32_t>(num_offered - from_offered);
    if (count == 0) break;
  }
  farthest_ = std::min(farthest_, last);
  for (Offer& row : offers) {
    if (row.next_use == kNoNextUse || row.next_use < last) continue;
    row.is_refused = row.next_use > last || num_offered_kept == 0;
    if (!row.is_refused) --num_offered_kept;
  }
  return num_removed;
}

void VictimBuffer::add(int64_t id, uint32_t next_use, uint32_t position, int64_t slot) {
  rows_of(next_use).push_back({id, static_cast<uint32_t>(slot), position});
  farthest_ = std::max(farthest_, next_use);
}

int64_t VictimBuffer::num_bytes() const {
  int64_t bytes = unknown_.num_bytes();
  for (const auto& due : rows_) bytes += sizeof(due) + due.capacity() * sizeof(Row);
  return bytes;
}

}  // namespace lsm::cache
