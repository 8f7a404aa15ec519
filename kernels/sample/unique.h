// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Relabelling: the distinct ids of a sequence in first-seen order, and for each element the index
// of its id among them. Two costs dominate: memory latency, so slots are prefetched a window ahead;
// and mispredicted branches, so known and new ids share one path without branches.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "kernels/core/check.h"
#include "kernels/core/host_array.h"
#include "kernels/core/prefetch.h"

namespace lsm {

/// An id and its local index; negative: an empty slot.
template <class Id>
struct IdSlot {
  Id id;
  int32_t local;
};

/// In place of padding, the number of the filling that wrote the slot. A slot of an earlier one is
/// empty, so that a table need not be cleared.
template <>
struct IdSlot<int64_t> {
  int64_t id;
  int32_t local;
  uint32_t filling;
};

/// Maps ids to local indices 0, 1, 2, ... in order of insertion. A hash table with open addressing
/// and linear probing, sized by the batch; or, when one 32-bit index for every id of the graph
/// takes no more memory than that, a plain array of them. Keeps its memory between batches.
/// Not thread-safe.
template <class Id>
class IdTable {
 public:
  /// At most this many distinct ids, so that a local index and the sign of an empty slot fit 32
  /// bits.
  static constexpr int64_t kMaxIds = int64_t{1} << 30;
  /// Ids that are prefetched ahead of their relabelling.
  static constexpr int64_t kWindow = 256;

  /// Empties the table. Ids are in [0, num_ids), or anything if `num_ids` is negative.
  void reset(int64_t num_ids) {
    num_ids_ = num_ids;
    size_ = 0;
    last_capacity_ = capacity_;
    capacity_ = 0;
    is_direct_ = false;
  }

  int64_t size() const { return size_; }

  /// Makes room for `max_size` distinct ids in all. `unique`: the ids in the table, in order, which
  /// are rehashed if the table grows.
  template <class T>
  void reserve(int64_t max_size, T* unique) {
    check_argument(max_size <= kMaxIds, "a batch of up to ", max_size,
                   " nodes; at most 2^30 are supported: use smaller batches or fanouts");
    const int64_t needed = capacity_for(max_size);
    if (is_direct_ || needed <= capacity_) return;
    // As large at once as the last batch's at its end: larger slots cost nothing until they are
    // used, and no id is rehashed.
    capacity_ = kHasFillings ? std::max(needed, last_capacity_) : needed;
    is_direct_ = num_ids_ >= 0 && num_ids_ * sizeof(int32_t) <= capacity_ * sizeof(Slot);
    if (is_direct_) {
      clear(locals_, num_ids_);
    } else {
      shift_ = 64 - std::countr_zero(static_cast<uint64_t>(capacity_));
      empty_slots();
    }
    const int64_t count = size_;
    size_ = 0;
    for (int64_t i = 0; i < count; ++i) insert(static_cast<Id>(unique[i]), unique);
  }

  /// The local index of `id`. Inserts a new id, with index size(). Writes `id` to unique[size()] in
  /// either case, so that list needs room for one more id than reserved.
  template <class T>
  int32_t insert(Id id, T* unique) {
    return is_direct_ ? insert_direct(id, unique, &size_) : insert_hashed(id, unique, &size_);
  }

  template <class T>
  LSM_ONLY_PREFETCHES void prefetch(std::span<const T> ids) const {
    if (is_direct_) {
      for (const T id : ids) __builtin_prefetch(&locals_[id], 1);
    } else {
      for (const T id : ids) __builtin_prefetch(&slots_[home(static_cast<Id>(id))], 1);
    }
  }

  /// Writes the local index of each of `ids` to `locals`, which may be the same memory, and appends
  /// new ids to `unique`, as insert() does.
  template <class T>
  void relabel(std::span<const T> ids, T* locals, T* unique) {
    int64_t size = size_;  // in a register: its memory would be read and written for every id
    if (is_direct_) {
      for (const T id : ids) *locals++ = insert_direct(static_cast<Id>(id), unique, &size);
    } else {
      for (const T id : ids) *locals++ = insert_hashed(static_cast<Id>(id), unique, &size);
    }
    size_ = size;
  }

 private:
  using Slot = IdSlot<Id>;
  static constexpr bool kHasFillings = std::is_same_v<Id, int64_t>;
  static constexpr uint64_t kMinCapacity = 64;
  static constexpr uint64_t kMaxSparseCapacity = uint64_t{1} << 19;

  /// A quarter full while the table is small, since every id outside its home slot costs a
  /// mispredicted branch; two thirds full once it is large, since cache misses then cost more.
  static int64_t capacity_for(int64_t size) {
    const auto sparse = std::bit_ceil(static_cast<uint64_t>(4 * size));
    const auto dense = std::bit_ceil(static_cast<uint64_t>(size + size / 2));
    const auto capacity = std::min(sparse, std::max(dense, kMaxSparseCapacity));
    return static_cast<int64_t>(std::max(capacity, kMinCapacity));
  }

  void empty_slots() {
    if constexpr (kHasFillings) {
      ++filling_;
      if (capacity_ <= num_slots_ && filling_ != 0) return;
      num_slots_ = std::max(capacity_, num_slots_);
      filling_ = 1;  // of slots of 0, none
      slots_.resize_discarding(num_slots_);
      std::memset(static_cast<void*>(slots_.data()), 0, num_slots_ * sizeof(Slot));
    } else {
      clear(slots_, capacity_);
    }
  }

  template <class T>
  static void clear(HostArray<T>& array, int64_t count) {
    array.resize_discarding(count);
    std::memset(static_cast<void*>(array.data()), 0xff, count * sizeof(T));
  }

  // Multiplicative hashing by 2^64 / golden ratio (Knuth 6.4): the high bits are the mixed ones.
  uint64_t home(Id id) const {
    return (static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ULL) >> shift_;
  }

  template <class T>
  int32_t insert_hashed(Id id, T* unique, int64_t* size) {
    Slot* slot = &slots_[home(id)];
    while (is_other(*slot, id)) [[unlikely]] {
      slot = slot == &slots_[capacity_ - 1] ? &slots_[0] : slot + 1;
    }
    const int32_t local = claim(local_in(*slot), id, unique, size);
    if constexpr (kHasFillings) {
      *slot = {id, local, filling_};
    } else {
      *slot = {id, local};
    }
    return local;
  }

  /// The local index in a slot; negative: it is empty.
  int32_t local_in(const Slot& slot) const {
    if constexpr (kHasFillings) {
      return slot.local | -static_cast<int32_t>(slot.filling != filling_);
    } else {
      return slot.local;
    }
  }

  /// True if the slot holds another id, as one condition: two would be two branches, and the one on
  /// an empty slot would often be mispredicted.
  bool is_other(const Slot& slot, Id id) const {
    return ((slot.id ^ id) & ~static_cast<Id>(local_in(slot) >> 31)) != 0;
  }

  template <class T>
  int32_t insert_direct(Id id, T* unique, int64_t* size) {
    return locals_[id] = claim(locals_[id], id, unique, size);
  }

  /// The local index of an id whose slot holds `found`: `found`, or the next new one. The order of
  /// known and new ids is unpredictable, so an all-ones mask selects, and both cases write.
  template <class T>
  static int32_t claim(int32_t found, Id id, T* unique, int64_t* size) {
    const int32_t is_new = found >> 31;
    unique[*size] = id;
    const int32_t local = (found & ~is_new) | (static_cast<int32_t>(*size) & is_new);
    *size -= is_new;
    return local;
  }

  HostArray<Slot> slots_;
  HostArray<int32_t> locals_;
  int64_t num_ids_ = -1;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
  int64_t last_capacity_ = 0;
  int64_t num_slots_ = 0;  // whose fillings are known
  uint32_t filling_ = 0;
  int shift_ = 0;
  bool is_direct_ = false;
};

/// Writes the distinct values of `ids` in first-seen order to `unique` (room for ids.size() + 1)
/// and the index of ids[i] among them to inverse[i]. Returns the number of distinct values.
int64_t unique_relabel(std::span<const int64_t> ids, int64_t* unique, int64_t* inverse);

}  // namespace lsm
