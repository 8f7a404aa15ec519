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

void VictimBuffer::open(uint32_t t) {
  open_ = t;
  if (!is_on()) return;
  const std::vector<Row>& rows = rows_of(t);
  due_.reset(static_cast<int64_t>(rows.size()));
  for (const Row& row : rows) due_.insert(row.id, row.slot);
}

void VictimBuffer::serve() {
  if (!is_on()) return;
  for (const Row& row : rows_of(open_)) slots_.give_back(row.slot);
  rows_of(open_).clear();
}

VictimBuffer::Entry VictimBuffer::put(int64_t id, uint32_t next_use) {
  const bool is_full = mode_ == VictimMode::kQueues
                           ? static_cast<int64_t>(rows_of(next_use).size()) == max_rows_
                           : slots_.is_full();
  if (!is_full) {
    const int64_t slot = slots_.take();
    add(id, next_use, slot);
    return {slot, false};
  }
  const int64_t slot = mode_ == VictimMode::kPool ? displace(next_use) : -1;
  if (slot >= 0) add(id, next_use, slot);
  return {slot, slot >= 0};
}

void VictimBuffer::add(int64_t id, uint32_t next_use, int64_t slot) {
  std::vector<Row>& rows = rows_of(next_use);
  rows.push_back({id, slot});
  std::push_heap(rows.begin(), rows.end());
  farthest_ = std::max(farthest_, next_use);
}

/// The slot of the farthest row, which leaves, if that is later than `next_use`; else -1.
int64_t VictimBuffer::displace(uint32_t next_use) {
  while (farthest_ > next_use && rows_of(farthest_).empty()) --farthest_;
  if (farthest_ <= next_use) return -1;
  std::vector<Row>& rows = rows_of(farthest_);
  std::pop_heap(rows.begin(), rows.end());
  const int64_t slot = rows.back().slot;
  rows.pop_back();
  return slot;
}

}  // namespace lsm::cache
