// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/unknown_rows.h"

namespace lsm::cache {

void UnknownRows::add(int64_t id, uint32_t rank, int64_t slot) {
  if (slot >= static_cast<int64_t>(rows_.size())) rows_.resize(slot + 1);
  table_.reserve(table_.size() + 1, [this](uint32_t other) { return hash_of(rows_[other].id); });
  table_.insert(hash_of(id), static_cast<uint32_t>(slot));
  rows_[slot] = {id, rank};
  order_.add(key_of(rank, static_cast<uint32_t>(slot)));
  // At most half of the keys are stale, so removing them costs no more than adding.
  if (order_.size() > 2 * table_.size() + 64) order_again();
}

int64_t UnknownRows::take_below(uint64_t rank) {
  while (!order_.is_empty()) {
    const uint64_t key = order_.lowest();
    if (rank_of(key) >= rank) break;
    request_soon();
    order_.remove_lowest();
    if (!holds(key)) continue;
    const uint32_t slot = slot_of(key);
    const uint64_t hash = hash_of(rows_[slot].id);
    forget(table_.find(hash, [slot](uint32_t other) { return other == slot; }), hash, slot);
    return slot;
  }
  return -1;
}

/// Prefetches memory of the rows that are likely to leave next.
void UnknownRows::request_soon() const {
  constexpr size_t kRowAhead = 16, kBucketAhead = 8;
  __builtin_prefetch(&rows_[slot_of(order_.soon(kRowAhead))], 1);
  const int64_t id = rows_[slot_of(order_.soon(kBucketAhead))].id;
  if (id != kNone) table_.prefetch(hash_of(id));
}

void UnknownRows::forget(OccurrenceTable::Place place, uint64_t hash, uint32_t slot) {
  table_.erase(hash, place);
  rows_[slot].id = kNone;
}

void UnknownRows::order_again() {
  order_.clear();
  for (size_t slot = 0; slot < rows_.size(); ++slot) {
    if (rows_[slot].id != kNone) order_.add(key_of(rows_[slot].rank, static_cast<uint32_t>(slot)));
  }
}

}  // namespace lsm::cache
