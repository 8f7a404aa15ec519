// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The victim buffer's book-keeping (LSM-GNN, section 4.3, "PVP"): its rows, their slots and their
// next uses. Rows tagged i are requested at i, served then, and removed.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "cache/config.h"
#include "cache/unknown_rows.h"
#include "kernels/core/huge_pages.h"

namespace lsm::cache {

/// Hands out the lowest free of slots 0 .. capacity - 1. Memory grows with the slots in use.
class SlotAllocator {
 public:
  explicit SlotAllocator(int64_t capacity) : capacity_(capacity) {}

  bool is_full() const { return freed_.empty() && end_ == capacity_; }
  int64_t take();
  void give_back(int64_t slot) { freed_.push(slot); }

 private:
  int64_t capacity_;
  int64_t end_ = 0;  // slots from here on were never used
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> freed_;
};

/// Rows by their next use. `queues` (the paper): at most `rows` per iteration; refuses further
/// rows, and rows of unknown next use. `pool` (ours): at most `rows` in all, including rows of
/// unknown next use. A full pool replaces its worst row by a strictly better one: rows of unknown
/// next use are worst, the lowest rank first, then those with the farthest next use; the highest id
/// on ties. Not thread-safe.
class VictimBuffer {
 public:
  VictimBuffer(VictimMode mode, int64_t rows, int64_t window);

  bool is_on() const { return mode_ != VictimMode::kNone; }
  /// True if rows of unknown next use may enter.
  bool takes_unknown() const { return mode_ == VictimMode::kPool; }

  struct Row {
    int64_t id;
    uint32_t slot;
    uint32_t position;  // in the batch of its next use
    friend bool operator<(const Row& a, const Row& b) { return a.id < b.id; }
  };

  /// The rows that iteration `t` requests.
  std::span<const Row> due(uint32_t t) const {
    if (!is_on()) return {};
    return rows_[t % rows_.size()].rows;
  }
  /// Removes them.
  void serve(uint32_t t);

  struct Entry {
    int64_t slot = -1;      // -1: refused
    bool is_lost = false;   // this row, or the one whose slot it got, had a next use
    bool is_taken = false;  // replaced another row
  };
  /// Adds a row that iteration `next_use` of the window requests at `position`.
  Entry put(int64_t id, uint32_t next_use, uint32_t position);
  /// Adds a row of unknown next use. Precondition: takes_unknown().
  Entry put_unknown(int64_t id, uint32_t rank);
  /// Records this move as the last that fills `slot`.
  void note_move(int64_t slot, uint32_t move) { moves_[slot] = move; }
  /// True if this move is the last recorded for `slot`.
  bool is_last_move(int64_t slot, uint32_t move) const { return moves_[slot] == move; }

  /// Takes batch `t`, which enters the window: tags its rows of unknown next use, and calls
  /// tagged(position, slot) for each. `positions`: positions of the ids that may be among them.
  template <class Tagged, class... Positions>
  void enter_window(uint32_t t, std::span<const int64_t> ids, const Tagged& tagged,
                    const Positions&... positions) {
    unknown_.take(ids, positions..., [&](uint32_t position, int64_t slot) {
      add(ids[position], t, position, slot);
      tagged(position, slot);
    });
  }

  /// Gives every row of unknown next use the rank rank_of(id).
  template <class RankOf>
  void rank_again(const RankOf& rank_of) {
    unknown_.rank_again(rank_of);
  }

  int64_t num_bytes() const;

 private:
  struct Rows {
    std::vector<Row> rows;
    size_t heap_size = 0;  // of the first of them, a heap with the highest id on top
  };

  Rows& rows_of(uint32_t t) { return rows_[t % rows_.size()]; }
  void add(int64_t id, uint32_t next_use, uint32_t position, int64_t slot);
  int64_t displace(uint32_t next_use);
  int64_t take_slot();

  VictimMode mode_;
  int64_t max_rows_;
  SlotAllocator slots_;
  std::vector<Rows> rows_;  // by next use mod the window
  UnknownRows unknown_;
  HugePageVector<uint32_t> moves_;  // by slot: number of the move that filled it last
  uint32_t farthest_ = 0;           // no row has a later next use
};

}  // namespace lsm::cache
