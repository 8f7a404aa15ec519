// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Finds the index of an id in a list: a hash table sized by the list, read by many threads at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/hash.h"

namespace lsm::cache {

/// Maps distinct ids, none negative, to values >= 0. Open addressing with linear probing, at most
/// half full.
class IdMap {
 public:
  /// Empties the map and makes room for `count` ids.
  void reset(int64_t count) {
    capacity_ = std::bit_ceil(static_cast<uint64_t>(2 * count + 1));
    if (slots_.size() < capacity_) slots_.resize(capacity_);
    std::fill_n(slots_.begin(), capacity_, Slot{});
    size_ = 0;
  }

  /// Returns false, and changes nothing, if the id is in the map.
  bool insert(int64_t id, int64_t value) {
    Slot& slot = slots_[position_of(id)];
    if (slot.id == id) return false;
    slot = {id, value};
    ++size_;
    return true;
  }

  /// The value of `id`, or -1.
  int64_t find(int64_t id) const { return size_ == 0 ? -1 : slots_[position_of(id)].value; }

  int64_t size() const { return size_; }

 private:
  struct Slot {
    int64_t id = -1;
    int64_t value = -1;
  };

  /// The slot of `id`, or the empty slot where it would go.
  uint64_t position_of(int64_t id) const {
    uint64_t position = mix64(static_cast<uint64_t>(id)) & (capacity_ - 1);
    while (slots_[position].id != id && slots_[position].id >= 0) {
      position = (position + 1) & (capacity_ - 1);
    }
    return position;
  }

  std::vector<Slot> slots_{1};
  uint64_t capacity_ = 1;
  int64_t size_ = 0;
};

/// The index of each of `ids`. Throws ArgumentError, naming the list, unless they are distinct and
/// none is negative.
IdMap index_ids(const char* name, std::span<const int64_t> ids);

}  // namespace lsm::cache
