// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The rows of a pool without a next use in the window: found by id when a batch enters the window,
// and by rank for eviction. Sized by the pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/occurrence_table.h"
#include "cache/pipelined.h"
#include "cache/sorted_runs.h"
#include "kernels/core/huge_pages.h"

namespace lsm::cache {

/// Not thread-safe. Slots are below 2^32.
class UnknownRows {
 public:
  bool is_empty() const { return table_.size() == 0; }

  /// Adds a row in a slot. Precondition: neither is present.
  void add(int64_t id, uint32_t rank, int64_t slot);

  /// Removes the row with the lowest rank, the highest slot on ties, and returns its slot, if its
  /// rank is below `rank`. Else returns -1.
  int64_t take_below(uint64_t rank);

  /// Removes the rows of ids[i], i in `positions`, that are present, and calls found(i, slot) for
  /// each.
  template <class Found>
  void take(std::span<const int64_t> ids, std::span<const uint32_t> positions, const Found& found) {
    if (is_empty()) return;
    take_staged(positions.size(), [&](size_t i) { return positions[i]; }, ids, found);
  }
  /// The same for all ids.
  template <class Found>
  void take(std::span<const int64_t> ids, const Found& found) {
    if (is_empty()) return;
    take_staged(ids.size(), [](size_t i) { return static_cast<uint32_t>(i); }, ids, found);
  }

  /// Gives every row the rank rank_of(id).
  template <class RankOf>
  void rank_again(const RankOf& rank_of) {
    for (Row& row : rows_) {
      if (row.id >= 0) row.rank = rank_of(row.id);
    }
    order_again();
  }

  int64_t num_bytes() const {
    return table_.num_bytes() + rows_.capacity() * sizeof(Row) + order_.num_bytes();
  }

 private:
  static constexpr int64_t kNone = -1;
  struct Row {
    int64_t id = kNone;  // kNone: the row of this slot is not here
    uint32_t rank = 0;
  };

  static uint64_t hash_of(int64_t id) { return mix64(static_cast<uint64_t>(id)); }
  /// Lower for a row that leaves before others.
  static uint64_t key_of(uint32_t rank, uint32_t slot) { return uint64_t{rank} << 32 | ~slot; }
  static uint32_t rank_of(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
  static uint32_t slot_of(uint64_t key) { return ~static_cast<uint32_t>(key); }
  bool holds(uint64_t key) const {
    const Row& row = rows_[slot_of(key)];
    return row.id != kNone && row.rank == rank_of(key);
  }
  void request_soon() const;
  void forget(OccurrenceTable::Place place, uint64_t hash, uint32_t slot);
  void order_again();

  /// Memory latency dominates the cost, so buckets and rows are prefetched some ids ahead.
  template <class PositionOf, class Found>
  void take_staged(size_t count, const PositionOf& position_of, std::span<const int64_t> ids,
                   const Found& found) {
    uint64_t hashes[kUnderWay];
    const auto request = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        hashes[i % kUnderWay] = hash_of(ids[position_of(i)]);
        table_.prefetch(hashes[i % kUnderWay]);
      }
    };
    const auto locate = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const int64_t slot = table_.likely_index(hashes[i % kUnderWay]);
        if (slot >= 0) __builtin_prefetch(&rows_[slot], 1);
      }
    };
    const auto finish = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const uint64_t hash = hashes[i % kUnderWay];
        const int64_t id = ids[position_of(i)];
        const auto place = table_.find(hash, [&](uint32_t slot) { return rows_[slot].id == id; });
        if (place.slot < 0) continue;
        const uint32_t slot = table_.index_at(place);
        forget(place, hash, slot);
        found(position_of(i), int64_t{slot});
      }
    };
    run_pipelined(count, request, locate, finish);
  }

  OccurrenceTable table_;     // slots by id
  HugePageVector<Row> rows_;  // by slot
  SortedRuns order_;          // a key stays when take() removes its row; rows_ shows its validity
};

}  // namespace lsm::cache
