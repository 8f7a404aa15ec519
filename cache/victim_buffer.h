// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The victim buffer's book-keeping (LSM-GNN, section 4.3, "PVP"): its rows, their slots and their
// next uses. Rows tagged i are requested at i, served then, and removed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/config.h"
#include "cache/unknown_rows.h"

namespace lsm::cache {

/// Hands out the lowest free of slots 0 .. capacity - 1. Memory grows with the slots in use.
class SlotAllocator {
 public:
  explicit SlotAllocator(int64_t capacity) : capacity_(capacity) {}

  int64_t num_used() const { return end_ - num_freed_; }
  int64_t take();
  void give_back(int64_t slot);

 private:
  int64_t capacity_;
  int64_t end_ = 0;  // slots from here on were never used
  int64_t num_freed_ = 0;
  std::vector<uint64_t> freed_;  // [end_] bits
  size_t lowest_ = 0;            // no word before it has a bit
};

/// Rows by their next use. `queues` (the paper): at most `rows` per iteration; refuses further
/// rows, and rows of unknown next use. `pool` (ours): at most `rows` in all, including rows of
/// unknown next use. It keeps the best of its rows and of those that are offered: first rows with a
/// next use, the nearest before others; then rows of unknown next use, the highest rank before
/// others; on ties first its own, by slot, then those that are offered, in their order. Not
/// thread-safe.
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
  };

  /// The rows that iteration `t` requests.
  std::span<const Row> due(uint32_t t) const {
    if (!is_on()) return {};
    return rows_[t % rows_.size()];
  }
  /// Removes them.
  void serve(uint32_t t);

  /// A row that leaves the device.
  struct Offer {
    int64_t id;
    uint32_t next_use;  // an iteration of the window, or kNoNextUse if takes_unknown()
    uint32_t position;  // in the batch of its next use
    uint32_t rank;      // without a next use
    bool is_refused = false;
    int64_t slot = -1;  // out: -1: refused
  };
  struct Outcome {
    int64_t num_entered = 0;
    int64_t num_lost = 0;  // rows with a next use that were refused or gave way
  };
  /// Takes those of the offered rows that are among the best. The slots of rows that give way are
  /// free before any row enters.
  Outcome put(std::span<Offer> offers);

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
  std::vector<Row>& rows_of(uint32_t t) { return rows_[t % rows_.size()]; }
  void add(int64_t id, uint32_t next_use, uint32_t position, int64_t slot);
  void refuse_beyond_queues(std::span<Offer> offers);
  int64_t drop_unknown(std::span<Offer> offers, int64_t most);
  int64_t drop_known(std::span<Offer> offers, int64_t count);

  VictimMode mode_;
  int64_t max_rows_;
  SlotAllocator slots_;
  std::vector<std::vector<Row>> rows_;  // by next use mod the window
  UnknownRows unknown_;
  uint32_t farthest_ = 0;  // no row has a later next use
  // Working memory.
  std::vector<uint32_t> counts_;
  std::vector<uint64_t> ranked_;
  std::vector<uint64_t> scratch_;
};

}  // namespace lsm::cache
