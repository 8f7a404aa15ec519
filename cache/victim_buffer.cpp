// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/victim_buffer.h"

#include <algorithm>
#include <cassert>
#include <utility>

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

void VictimBuffer::open(uint32_t t) {
  open_ = t;
  if (!is_on()) return;
  const std::vector<Row>& rows = rows_of(t).rows;
  due_.reset(static_cast<int64_t>(rows.size()));
  for (const Row& row : rows) due_.insert(row.id, row.slot);
}

void VictimBuffer::serve() {
  if (!is_on()) return;
  Rows& due = rows_of(open_);
  for (const Row& row : due.rows) slots_.give_back(row.slot);
  due.rows.clear();
  due.is_heap = false;
}

VictimBuffer::Entry VictimBuffer::put(int64_t id, uint32_t next_use) {
  const bool is_full = mode_ == VictimMode::kQueues
                           ? static_cast<int64_t>(rows_of(next_use).rows.size()) == max_rows_
                           : slots_.is_full();
  Entry entry;
  if (!is_full) {
    entry.slot = slots_.take();
  } else if (mode_ == VictimMode::kPool) {
    entry.slot = unknown_.take_below(UINT64_MAX);
    if (entry.slot < 0) {
      entry.slot = displace(next_use);
      entry.is_lost = true;
    }
  } else {
    entry.is_lost = true;
  }
  if (entry.slot < 0) return entry;
  entry.is_again = note_entry(entry.slot);
  add(id, next_use, entry.slot);
  return entry;
}

VictimBuffer::Entry VictimBuffer::put_unknown(int64_t id, uint32_t rank) {
  Entry entry;
  entry.slot = slots_.is_full() ? unknown_.take_below(rank) : slots_.take();
  if (entry.slot < 0) return entry;
  entry.is_again = note_entry(entry.slot);
  unknown_.add(id, rank, entry.slot);
  return entry;
}

/// Whether a row has entered this slot since open(), before this one.
bool VictimBuffer::note_entry(int64_t slot) {
  if (slot >= static_cast<int64_t>(entered_.size())) entered_.resize(slot + 1);
  return std::exchange(entered_[slot], open_ + 1) == open_ + 1;
}

bool VictimBuffer::is_first_claim(int64_t slot) {
  return std::exchange(entered_[slot], 0) == open_ + 1;
}

void VictimBuffer::add(int64_t id, uint32_t next_use, int64_t slot) {
  Rows& due = rows_of(next_use);
  due.rows.push_back({id, slot});
  if (due.is_heap) std::push_heap(due.rows.begin(), due.rows.end());
  farthest_ = std::max(farthest_, next_use);
}

/// The slot of the farthest row, which leaves, if that is later than `next_use`; else -1.
int64_t VictimBuffer::displace(uint32_t next_use) {
  while (farthest_ > next_use && rows_of(farthest_).rows.empty()) --farthest_;
  if (farthest_ <= next_use) return -1;
  Rows& last = rows_of(farthest_);
  if (!last.is_heap) std::make_heap(last.rows.begin(), last.rows.end());
  last.is_heap = true;
  std::pop_heap(last.rows.begin(), last.rows.end());
  const int64_t slot = last.rows.back().slot;
  last.rows.pop_back();
  return slot;
}

int64_t VictimBuffer::num_bytes() const {
  int64_t bytes = unknown_.num_bytes() + entered_.capacity() * sizeof(uint32_t);
  for (const Rows& due : rows_) bytes += sizeof(due) + due.rows.capacity() * sizeof(Row);
  return bytes;
}

}  // namespace lsm::cache
