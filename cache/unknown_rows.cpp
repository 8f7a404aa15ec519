// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/unknown_rows.h"

#include <algorithm>

namespace lsm::cache {

void UnknownRows::add(int64_t id, uint32_t rank, int64_t slot) {
  if (slot >= static_cast<int64_t>(rows_.size())) rows_.resize(slot + 1);
  table_.reserve(table_.size() + 1, [this](uint32_t other) { return hash_of(rows_[other].id); });
  table_.insert(hash_of(id), static_cast<uint32_t>(slot));
  rows_[slot] = {id, rank};
  heap_.push_back({id, rank, static_cast<uint32_t>(slot)});
  std::push_heap(heap_.begin(), heap_.end());
  // At most half of the entries are stale, so removing them costs no more than adding.
  if (static_cast<int64_t>(heap_.size()) > 2 * table_.size() + 64) rebuild_heap();
}

int64_t UnknownRows::take_below(uint64_t rank) {
  while (!heap_.empty() && heap_.front().rank < rank) {
    const Entry first = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    if (!holds(first)) continue;
    const uint64_t hash = hash_of(first.id);
    const auto is_first = [&](uint32_t slot) { return slot == first.slot; };
    forget(table_.find(hash, is_first), hash, first.slot);
    return first.slot;
  }
  return -1;
}

void UnknownRows::forget(OccurrenceTable::Place place, uint64_t hash, uint32_t slot) {
  table_.erase(hash, place);
  rows_[slot].id = kNone;
}

void UnknownRows::rebuild_heap() {
  heap_.clear();
  for (size_t slot = 0; slot < rows_.size(); ++slot) {
    if (rows_[slot].id == kNone) continue;
    heap_.push_back({rows_[slot].id, rows_[slot].rank, static_cast<uint32_t>(slot)});
  }
  std::make_heap(heap_.begin(), heap_.end());
}

}  // namespace lsm::cache
