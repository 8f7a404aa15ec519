// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The victim buffer's book-keeping on a Backend: the plans are those of VictimBuffer, but no row
// has a metadata word, because rows are found by their ids.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cache/config.h"
#include "cache/victims_functors.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/sample/sums_on_backend.h"

namespace lsm::cache {

/// Not thread-safe.
template <class Backend>
class VictimsOnBackend {
 public:
  VictimsOnBackend(Backend& backend, VictimMode mode, int64_t rows, int64_t window)
      : backend_(&backend), mode_(mode), window_(window), rows_(rows) {
    if (mode == VictimMode::kNone) return;
    const int64_t num_slots = mode == VictimMode::kQueues ? rows * window : rows;
    check_argument(num_slots <= kMostSlots, "cache.victim: a planner on a GPU has at most ",
                   kMostSlots, " slots in the victim buffer, got ", num_slots);
    num_slots_ = static_cast<uint32_t>(num_slots);
    ids_.assign(num_slots, 0xFF);     // kEmptyTag
    orders_.assign(num_slots, 0xFF);  // kNoRow
    num_places_ = 3 * num_slots_ + 16;
    table_.assign(num_places_, 0);
    if (mode == VictimMode::kQueues) sizes_.assign(window, 0);
  }

  bool is_on() const { return num_slots_ > 0; }
  bool takes_unknown() const { return is_on() && mode_ == VictimMode::kPool; }
  VictimsRef ref() const {
    return {ids_.data(), orders_.data(), table_.data(), num_slots_, num_places_};
  }

  /// Batch `batch` enters the window: `count` occurrences from number `first` on.
  void tag(const ChainRef& chain, uint32_t first, uint32_t count, uint32_t batch) {
    if (takes_unknown()) backend_->for_each(count, TagVictim{ref(), chain, first, batch});
  }

  /// Frees the slots of the rows that iteration `t` has found.
  void serve(uint32_t t, const int64_t* ids, const RowSource* source, const int64_t* slot,
             int64_t count) {
    if (!is_on()) return;
    backend_->for_each(count, ServeVictim{ref(), ids, source, slot});
    if (mode_ == VictimMode::kQueues) {
      backend_->fill(sizes_.data() + t % window_, 0, sizeof(uint32_t));
    }
  }

  /// The rows that leave in one plan, and the places of the results.
  struct Spill {
    const Leaving* leaving;  // [count]
    const uint32_t* keys;    // [count]
    int64_t count;
    RanksRef ranks;
    uint32_t num_sets;
    uint32_t num_pushed;
    int64_t* slot;         // [count] out
    int64_t* num_entered;  // out
    int64_t* num_lost;     // out; 0 before
  };
  void spill(const Spill& spilled) {
    if (!is_on() || spilled.count == 0) return;
    const OffersRef offers = {spilled.leaving, offered_.grow(spilled.count), spilled.count};
    backend_->for_each(spilled.count,
                       OfferRow{offers, spilled.ranks, spilled.keys, spilled.num_sets,
                                spilled.num_pushed, takes_unknown()});
    const int64_t most = std::min<int64_t>(spilled.count, num_slots_);
    make_places(most);
    const bool is_cut = takes_unknown() && num_rows_ + spilled.count > num_slots_;
    int64_t words = OrderedSum<ListFree>::state_words(num_slots_) +
                    OrderedSum<EnterOffers>::state_words(spilled.count);
    if (is_cut) words += OrderedSum<KeepBest>::state_words(num_slots_ + spilled.count);
    sums_.clear(words);
    if (is_cut) keep_best(offers, spilled.num_lost);
    if (mode_ == VictimMode::kQueues) refuse_beyond_queues(offers, spilled.num_lost);
    uint32_t* const free = free_.grow(most);
    sums_.run(ListFree{ref(), free, most}, num_slots_);
    sums_.run(EnterOffers{ref(), offers, free, spilled.slot, spilled.num_entered}, spilled.count);
  }
  /// The results of the plan, once they are known.
  void note(int64_t num_served, int64_t num_entered) {
    num_rows_ = std::min<int64_t>(num_rows_ - num_served + num_entered, num_slots_);
    num_places_used_ += num_entered;
  }

  void rank_again(const ScoresRef& scores) {
    if (takes_unknown()) backend_->for_each(num_slots_, RankAgain{ref(), scores});
  }

  int64_t num_bytes() const {
    return ids_.capacity() * sizeof(int64_t) + orders_.capacity() * sizeof(uint64_t) +
           table_.capacity() * sizeof(uint32_t) + sizes_.capacity() * sizeof(uint32_t);
  }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;
  static constexpr int64_t kMostSlots = int64_t{1} << 30;

  /// Makes the table anew before `count` more rows might use more than two thirds of its places.
  void make_places(int64_t count) {
    if (num_places_used_ + count <= 2 * int64_t{num_slots_}) return;
    backend_->fill(table_.data(), 0, num_places_ * sizeof(uint32_t));
    backend_->for_each(num_slots_, EnterSlot{ref()});
    num_places_used_ = num_rows_;
  }

  void keep_best(const OffersRef& offers, int64_t* num_lost) {
    constexpr int64_t kNumCounts = PoolRows::kPasses * PoolRows::kDigits;
    const PoolRows rows = {ref(), offers, digits_.grow(kNumCounts)};
    backend_->fill(digits_.data(), 0, kNumCounts * sizeof(uint64_t));
    const int64_t num_tiles = (rows.num_items() + CountDigits::kTile - 1) / CountDigits::kTile;
    for (int pass = 0; pass < PoolRows::kPasses; ++pass) {
      backend_->for_each_warp(num_tiles, CountDigits{rows, pass});
    }
    Cut* const cut = cut_.grow(1);
    backend_->for_each_warp(1, WriteCut{rows, cut, num_lost});
    sums_.run(KeepBest{rows, cut}, rows.num_items());
  }

  void refuse_beyond_queues(const OffersRef& offers, int64_t* num_lost) {
    const int64_t count = offers.count;
    const auto num_queues = static_cast<uint32_t>(window_);
    uint32_t* const keys = key_.grow(count);
    uint32_t* const positions = position_.grow(count);
    backend_->for_each(count, WriteQueue{offers, keys, positions, num_queues});
    const QueuesRef queues = {offers,
                              sorted_key_.grow(count),
                              sorted_position_.grow(count),
                              starts_.grow(window_),
                              sizes_.data(),
                              num_queues,
                              static_cast<uint32_t>(rows_)};
    backend_->sort_pairs(keys, sorted_key_.data(), positions, sorted_position_.data(), count,
                         std::bit_width(num_queues));
    backend_->for_each(count, WriteStart{queues});
    backend_->for_each(count, RefuseBeyond{queues});
    backend_->for_each(count, GrowQueue{queues, num_lost});
  }

  Backend* const backend_;
  const VictimMode mode_;
  const int64_t window_;
  const int64_t rows_;
  uint32_t num_slots_ = 0;
  uint32_t num_places_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_places_used_ = 0;  // at most, by rows that are there or have left
  Array<int64_t> ids_{*backend_};
  Array<uint64_t> orders_{*backend_};
  Array<uint32_t> table_{*backend_};
  Array<uint32_t> sizes_{*backend_};
  // Of the plan that is made.
  Array<uint64_t> offered_{*backend_};
  Array<uint32_t> free_{*backend_};
  Array<uint64_t> digits_{*backend_};
  Array<Cut> cut_{*backend_};
  Array<uint32_t> key_{*backend_};
  Array<uint32_t> position_{*backend_};
  Array<uint32_t> sorted_key_{*backend_};
  Array<uint32_t> sorted_position_{*backend_};
  Array<uint32_t> starts_{*backend_};
  SumsOnBackend<Backend> sums_{*backend_};
};

}  // namespace lsm::cache
