// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The victim buffer's book-keeping (LSM-GNN, section 4.3, "PVP"): which rows it holds, in which
// slots, and until when. Rows tagged i are requested at i, so they are served then and leave.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "cache/config.h"
#include "cache/id_map.h"

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
  int64_t end_ = 0;  // slots from here on have never been taken
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> freed_;
};

/// Rows by the iteration that requests them next. `queues`: at most `rows` per iteration, the rest
/// is refused (the paper). `pool`: at most `rows` in all; when full, the row with the farthest next
/// use, highest id on ties, gives way to a strictly nearer one (ours). Not thread-safe.
class VictimBuffer {
 public:
  VictimBuffer(VictimMode mode, int64_t rows, int64_t window);

  bool is_on() const { return mode_ != VictimMode::kNone; }

  /// Prepares find() for the rows tagged `t`.
  void open(uint32_t t);
  /// The slot of a row tagged with the iteration that is open, or -1. Thread-safe.
  int64_t find(int64_t id) const { return due_.find(id); }
  /// Removes the rows of the open iteration.
  void serve();

  struct Entry {
    int64_t slot;    // -1: refused
    bool displaced;  // the slot was that of another row
  };
  /// Takes in a row that iteration `next_use` requests, after the open one and in the window.
  Entry put(int64_t id, uint32_t next_use);

 private:
  struct Row {
    int64_t id;
    int64_t slot;
    friend bool operator<(const Row& a, const Row& b) { return a.id < b.id; }
  };

  std::vector<Row>& rows_of(uint32_t t) { return rows_[t % rows_.size()]; }
  void add(int64_t id, uint32_t next_use, int64_t slot);
  int64_t displace(uint32_t next_use);

  VictimMode mode_;
  int64_t max_rows_;
  SlotAllocator slots_;
  std::vector<std::vector<Row>> rows_;  // by next use mod the window; heaps, the highest id on top
  IdMap due_;
  uint32_t open_ = 0;
  uint32_t farthest_ = 0;  // no row has a later next use
};

}  // namespace lsm::cache
