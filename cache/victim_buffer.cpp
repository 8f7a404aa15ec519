// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/victim_buffer.h"

#include <algorithm>
#include <cassert>

namespace lsm::cache {

int64_t SlotAllocator::take() {
  assert(!is_full());
  if (freed_.empty()) return end_++;
  const int64_t slot = freed_.top();
  freed_.pop();
  return slot;
}

VictimBuffer::VictimBuffer(VictimMode mode, int64_t rows, int64_t window)
    : mode_(mode),
      max_rows_(rows),
      slots_(mode == VictimMode::kQueues ? rows * window : rows),
      rows_(mode == VictimMode::kNone ? 0 : window) {}

void VictimBuffer::serve(uint32_t t) {
  if (!is_on()) return;
  Rows& due = rows_of(t);
  for (const Row& row : due.rows) slots_.give_back(row.slot);
  due.rows.clear();
  due.heap_size = 0;
}

VictimBuffer::Entry VictimBuffer::put(int64_t id, uint32_t next_use, uint32_t position) {
  const bool is_full = mode_ == VictimMode::kQueues
                           ? static_cast<int64_t>(rows_of(next_use).rows.size()) == max_rows_
                           : slots_.is_full();
  Entry entry;
  if (!is_full) {
    entry.slot = take_slot();
  } else if (mode_ == VictimMode::kPool) {
    entry.slot = unknown_.take_below(UINT64_MAX);
    if (entry.slot < 0) {
      entry.slot = displace(next_use);
      entry.is_lost = true;
    }
    entry.is_taken = true;
  } else {
    entry.is_lost = true;
  }
  if (entry.slot >= 0) add(id, next_use, position, entry.slot);
  return entry;
}

VictimBuffer::Entry VictimBuffer::put_unknown(int64_t id, uint32_t rank) {
  Entry entry;
  entry.is_taken = slots_.is_full();
  entry.slot = entry.is_taken ? unknown_.take_below(rank) : take_slot();
  if (entry.slot >= 0) unknown_.add(id, rank, entry.slot);
  return entry;
}

int64_t VictimBuffer::take_slot() {
  const int64_t slot = slots_.take();
  if (slot >= static_cast<int64_t>(moves_.size())) moves_.resize(slot + 1);
  return slot;
}

void VictimBuffer::add(int64_t id, uint32_t next_use, uint32_t position, int64_t slot) {
  rows_of(next_use).rows.push_back({id, static_cast<uint32_t>(slot), position});
  farthest_ = std::max(farthest_, next_use);
}

/// Removes the row with the farthest next use, if that is later than `next_use`, and returns its
/// slot; else -1.
int64_t VictimBuffer::displace(uint32_t next_use) {
  while (farthest_ > next_use && rows_of(farthest_).rows.empty()) --farthest_;
  if (farthest_ <= next_use) return -1;
  Rows& last = rows_of(farthest_);
  const auto first = last.rows.begin();
  while (last.heap_size < last.rows.size()) std::push_heap(first, first + ++last.heap_size);
  std::pop_heap(first, last.rows.end());
  const int64_t slot = last.rows.back().slot;
  last.rows.pop_back();
  --last.heap_size;
  return slot;
}

int64_t VictimBuffer::num_bytes() const {
  int64_t bytes = unknown_.num_bytes() + moves_.capacity() * sizeof(uint32_t);
  for (const Rows& due : rows_) bytes += sizeof(due) + due.rows.capacity() * sizeof(Row);
  return bytes;
}

}  // namespace lsm::cache
