// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Finds the latest occurrence of an id in the window. Cache misses dominate the cost, so a bucket
// is one cache line with 12 slots of 4-byte occurrence indices and 1-byte tags. A look-up touches
// one bucket and, as a rule, no occurrence but the right one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cache/byte_match.h"
#include "kernels/core/hash.h"
#include "kernels/core/host_array.h"
#include "kernels/core/prefetch.h"

namespace lsm::cache {

/// Maps hashes of ids to 32-bit indices of entries whose ids the caller compares. Ids are distinct.
/// Deletion leaves no tombstones: a bucket counts the entries that overflowed it.
class OccurrenceTable {
 public:
  OccurrenceTable() { allocate(1); }

  /// A slot, valid until an insertion or deletion.
  struct Place {
    uint32_t bucket;
    int32_t slot;  // -1: not found
  };

  int64_t size() const { return size_; }
  int64_t num_bytes() const { return int64_t{num_buckets_} * sizeof(Bucket); }

  LSM_ONLY_PREFETCHES void prefetch(uint64_t hash) const {
    __builtin_prefetch(&buckets_[home(hash)], 1);
  }

  /// The index in the first slot with the tag of `hash`, or -1: a guess for prefetching.
  int64_t likely_index(uint64_t hash) const {
    const Bucket& bucket = buckets_[home(hash)];
    const uint32_t marks = bucket.slots_with(tag_of(hash));
    return marks != 0 ? int64_t{bucket.index[std::countr_zero(marks)]} : -1;
  }

  /// The place of the entry for which `matches(index)` is true.
  template <class Matches>
  Place find(uint64_t hash, const Matches& matches) const {
    const uint8_t tag = tag_of(hash);
    const uint32_t first = home(hash);
    for (uint32_t b = first;; b = next(b)) {
      const Bucket& bucket = buckets_[b];
      for (uint32_t left = bucket.slots_with(tag); left != 0; left &= left - 1) {
        const int32_t slot = std::countr_zero(left);
        if (matches(bucket.index[slot])) return {b, slot};
      }
      // In a small table every bucket may have overflowed into the next.
      if (bucket.num_past == 0 || next(b) == first) return {b, -1};
    }
  }

  uint32_t& index_at(Place place) { return buckets_[place.bucket].index[place.slot]; }

  /// Adds an entry. Precondition: it is not in the table, and reserve() has made room for it.
  void insert(uint64_t hash, uint32_t index) {
    uint32_t b = home(hash);
    uint32_t empty;
    while ((empty = buckets_[b].slots_with(kEmpty)) == 0) {
      ++buckets_[b].num_past;
      b = next(b);
    }
    const int32_t slot = std::countr_zero(empty);
    buckets_[b].tag[slot] = tag_of(hash);
    buckets_[b].index[slot] = index;
    ++size_;
  }

  void erase(uint64_t hash, Place place) {
    for (uint32_t b = home(hash); b != place.bucket; b = next(b)) --buckets_[b].num_past;
    buckets_[place.bucket].tag[place.slot] = kEmpty;
    --size_;
  }

  /// Makes room for `count` entries in all. Rehashes present entries with `hash_of(index)`.
  template <class HashOf>
  void reserve(int64_t count, const HashOf& hash_of) {
    const int64_t needed = count * 5 / (4 * kSlots) + 1;  // at most 80% full
    if (needed <= num_buckets_) return;
    const HostArray<Bucket> old = std::move(buckets_);
    const uint32_t old_buckets = num_buckets_;
    allocate(std::max(needed, int64_t{num_buckets_} * 3 / 2));
    for (uint32_t b = 0; b < old_buckets; ++b) {
      for (int32_t slot = 0; slot < kSlots; ++slot) {
        if (old[b].tag[slot] != kEmpty) insert(hash_of(old[b].index[slot]), old[b].index[slot]);
      }
    }
  }

 private:
  static constexpr int32_t kSlots = 12;
  static constexpr uint8_t kEmpty = 0;

  struct alignas(64) Bucket {
    uint32_t index[kSlots];
    uint8_t tag[kSlots];
    uint32_t num_past;  // entries in a later bucket because this one was full

    /// The slots with a tag: bit i for slot i. The bytes after the last tag are num_past.
    uint32_t slots_with(uint8_t wanted) const {
      const uint8_t* bytes = reinterpret_cast<const uint8_t*>(this) + offsetof(Bucket, tag);
      return match_bytes(bytes, wanted) & ((uint32_t{1} << kSlots) - 1);
    }
  };
  static_assert(offsetof(Bucket, tag) + kMatchedBytes == sizeof(Bucket));
  static_assert(sizeof(Bucket) == 64);

  static uint8_t tag_of(uint64_t hash) { return std::max<uint8_t>(hash & 0xFF, 1); }
  uint32_t home(uint64_t hash) const { return ((hash >> 32) * num_buckets_) >> 32; }
  uint32_t next(uint32_t bucket) const { return bucket + 1 == num_buckets_ ? 0 : bucket + 1; }

  void allocate(int64_t num_buckets) {
    num_buckets_ = static_cast<uint32_t>(num_buckets);
    buckets_ = {};
    buckets_.resize_discarding(num_buckets);
    std::memset(static_cast<void*>(buckets_.data()), 0, num_buckets * sizeof(Bucket));
    size_ = 0;
  }

  HostArray<Bucket> buckets_;
  uint32_t num_buckets_ = 0;
  int64_t size_ = 0;
};

}  // namespace lsm::cache
