// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Relabelling: the distinct ids of a sequence in first-seen order, and for each element the index
// of its id among them. What costs is memory latency, so slots are prefetched a window ahead and
// the common paths (found or new at the first probe) share one code path without a branch.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/core/check.h"
#include "kernels/sample/host_array.h"

namespace lsm {

/// A hash table from ids to local indices 0, 1, 2, ... in order of insertion: open addressing with
/// linear probing, power-of-two capacity, multiplicative hash. When the ids are known to be below
/// `num_ids` and the capacity reaches that, the hash is the identity and nothing ever collides.
/// Keeps its memory between batches; metadata is sized by the batch. Not thread-safe.
template <class Id>
class IdTable {
 public:
  /// At most this many distinct ids, so that local indices and the sign that marks an empty slot
  /// share 32 bits.
  static constexpr int64_t kMaxIds = int64_t{1} << 30;

  /// Empties the table. Ids are in [0, num_ids), or anything if `num_ids` is negative.
  void reset(int64_t num_ids) {
    num_ids_ = num_ids;
    size_ = 0;
    capacity_ = 0;
  }

  int64_t size() const { return size_; }

  /// Makes room for `max_size` distinct ids in all. `inserted` are those in the table, in order:
  /// they are entered anew if the table has to grow.
  template <class T>
  void reserve(int64_t max_size, const T* inserted) {
    if (num_ids_ >= 0) max_size = std::min(max_size, num_ids_);
    check_argument(max_size <= kMaxIds, "a batch of up to ", max_size,
                   " nodes; at most 2^30 are supported: use smaller batches or fanouts");
    const int64_t needed = static_cast<int64_t>(std::bit_ceil(
        static_cast<uint64_t>(std::max<int64_t>(max_size + max_size / 2, kMinCapacity))));
    if (needed <= capacity_) return;
    capacity_ = needed;
    const bool direct = num_ids_ >= 0 && capacity_ >= num_ids_;
    multiplier_ = direct ? 1 : kGolden;
    shift_ = direct ? 0 : 64 - std::countr_zero(static_cast<uint64_t>(capacity_));
    slots_.resize_discarding(capacity_);
    std::memset(static_cast<void*>(slots_.data()), 0xff, capacity_ * sizeof(Slot));
    const int64_t count = size_;
    size_ = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (i + kWindow < count) prefetch(static_cast<Id>(inserted[i + kWindow]));
      Id ignored;
      insert(static_cast<Id>(inserted[i]), &ignored);
    }
  }

  void prefetch(Id id) const { __builtin_prefetch(&slots_[home(id)], 1); }

  /// The local index of `id`, which is size() if it was not in the table; in that case it is now.
  /// Writes `id` to *next (the place of a new id in the list of distinct ids) either way. Room
  /// must have been reserved.
  template <class T>
  int32_t insert(Id id, T* next) {
    Slot* slot = &slots_[home(id)];
    *next = id;
    while (slot->local >= 0 && slot->id != id) [[unlikely]] {
      slot = slot == &slots_[capacity_ - 1] ? &slots_[0] : slot + 1;
    }
    // Old and new ids come in no predictable order: a branch here would be mispredicted often.
    const bool is_new = slot->local < 0;
    const int32_t local = is_new ? static_cast<int32_t>(size_) : slot->local;
    slot->id = id;
    slot->local = local;
    size_ += is_new;
    return local;
  }

  /// Replaces each of `ids` by its local index. New ids are appended to `unique`, which holds
  /// size() ids and has room for one more than are reserved.
  template <class T>
  void relabel(std::span<T> ids, T* unique) {
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = insert(static_cast<Id>(ids[i]), unique + size_);
    }
  }

  /// How many slots to prefetch before they are used.
  static constexpr int64_t kWindow = 256;

 private:
  struct Slot {
    Id id;
    int32_t local;  // negative: empty
  };
  static constexpr int64_t kMinCapacity = 64;
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;  // 2^64 / golden ratio (Knuth 6.4)

  // The shift keeps the high bits, the well mixed ones.
  uint64_t home(Id id) const { return (static_cast<uint64_t>(id) * multiplier_) >> shift_; }

  HostArray<Slot> slots_;
  int64_t capacity_ = 0;
  int64_t size_ = 0;
  int64_t num_ids_ = -1;
  uint64_t multiplier_ = kGolden;
  int shift_ = 0;
};

/// Writes the distinct values of `ids` in first-seen order to `unique` (room for ids.size() + 1)
/// and the index of ids[i] among them to inverse[i]. Returns the number of distinct values.
int64_t unique_relabel(std::span<const int64_t> ids, int64_t* unique, int64_t* inverse);

}  // namespace lsm
