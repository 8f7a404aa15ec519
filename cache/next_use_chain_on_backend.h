// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// NextUseChain in the memory of a Backend: the same links, made by a thread for each id.
#pragma once

#include <algorithm>
#include <bit>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cache/next_use_chain_functors.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"

namespace lsm::cache {

/// Holds the batches of the window. Not thread-safe.
template <class Backend>
class NextUseChainOnBackend {
 public:
  explicit NextUseChainOnBackend(Backend& backend) : backend_(&backend) {
    is_refused_.assign(2, 0);
  }

  /// As NextUseChain::push(), but blocks until the batch is checked, also as check_ids() does. In
  /// the result, valid until the next call, `previous` marks the ids without an earlier occurrence.
  EnteringRef push(std::span<const int64_t> ids, int64_t num_nodes) {
    make_room(static_cast<int64_t>(ids.size()));
    const uint32_t count = static_cast<uint32_t>(ids.size());
    const uint32_t number = static_cast<uint32_t>(end_batch());
    EnteringRef entering = {ref(),
                            first_ + num_entries_,
                            count,
                            number,
                            previous_.grow(count),
                            place_.grow(count),
                            is_refused_.data()};
    entering.chain.live += count;
    backend_->for_each(
        count, WriteOccurrence{entering, ids_.upload(ids), num_nodes < 0 ? INT64_MAX : num_nodes});
    backend_->for_each(count, LinkOccurrence{entering});
    uint32_t is_refused[2] = {};
    backend_->download(is_refused, is_refused_.data(), sizeof(is_refused));
    backend_->synchronize();
    num_slots_used_ += count;
    if (is_refused[0] != 0 || is_refused[1] != 0) {
      backend_->for_each(count, UnlinkOccurrence{entering});
      backend_->fill(is_refused_.data(), 0, sizeof(is_refused));
      check_ids(ids, num_nodes);
      throw_repeated(ids, number);
    }
    counts_.push_back(count);
    num_entries_ += count;
    return entering;
  }

  int64_t end_batch() const { return first_batch_ + static_cast<int64_t>(counts_.size()); }
  int64_t num_entries() const { return num_entries_; }
  /// The ids of the first batch.
  int64_t first_size() const { return counts_.front(); }

  struct Occurrences {
    uint32_t first;  // number
    uint32_t count;
  };
  /// Those of batch `b` of the window.
  Occurrences find(int64_t b) const {
    if (b + 1 == end_batch()) {
      return {first_ + num_entries_ - counts_.back(), counts_.back()};
    }
    uint32_t first = first_;
    for (int64_t k = 0; k < b - first_batch_; ++k) first += counts_[k];
    return {first, counts_[b - first_batch_]};
  }

  /// The ids of batch `b` of the window. Blocks.
  std::vector<int64_t> batch(int64_t b) {
    const Occurrences batch = find(b);
    std::vector<int64_t> ids(batch.count);
    const auto count = static_cast<int64_t>(ids.size());
    backend_->for_each(count, ReadIds{ref(), batch.first, ids_.grow(count)});
    backend_->download(ids.data(), ids_.data(), ids.size() * sizeof(ids[0]));
    backend_->synchronize();
    return ids;
  }

  /// The chain, whose first occurrences are those of the first batch. Valid until the next push().
  ChainRef ref() const {
    return {ring_ ? ring_->data() : nullptr,
            slots_.data(),
            ring_size_ - 1,
            num_slots_,
            first_,
            num_entries_};
  }

  /// Drops the first batch of the window.
  void retire() {
    first_ += counts_.front();
    num_entries_ -= counts_.front();
    counts_.pop_front();
    ++first_batch_;
  }

  int64_t num_bytes() const {
    return int64_t{ring_size_} * sizeof(Access) + slots_.capacity() * sizeof(uint32_t);
  }

 private:
  // With at most 15/4 slots per entry, the table is rebuilt long before numbers recur.
  static constexpr int64_t kMaxEntries = int64_t{1} << 28;

  template <class T>
  using Array = BackendArray<T, Backend>;

  /// Makes room for `count` more occurrences. At most two thirds of the slots are ever used, and at
  /// most one third after a rebuild, so the table is rebuilt once per turnover of the window.
  void make_room(int64_t count) {
    const int64_t needed = int64_t{num_entries_} + count;
    check_argument(needed < kMaxEntries,
                   "cache.window: at most 2^28 ids fit into the window of a planner on a GPU; make "
                   "it smaller or plan on the host");
    if (needed > ring_size_) {
      auto larger = std::make_unique<Array<Access>>(*backend_);
      const uint32_t size = std::bit_ceil(static_cast<uint32_t>(std::max(needed, kMinRing)));
      larger->assign(size, 0);
      backend_->for_each(num_entries_, MoveOccurrence{ref(), larger->data(), size - 1});
      ring_ = std::move(larger);
      ring_size_ = size;
    }
    if (num_slots_ > 0 && (num_slots_used_ + count) * 3 <= int64_t{num_slots_} * 2) return;
    slots_.grow(needed * 3 + kMinRing);
    num_slots_ = static_cast<uint32_t>(slots_.capacity());
    num_slots_used_ = num_entries_;
    backend_->fill(slots_.data(), 0, slots_.capacity() * sizeof(uint32_t));
    backend_->for_each(num_entries_, EnterLatest{ref()});
  }

  static constexpr int64_t kMinRing = 16;

  Backend* backend_;
  std::unique_ptr<Array<Access>> ring_;
  uint32_t ring_size_ = 0;
  Array<uint32_t> slots_{*backend_};
  uint32_t num_slots_ = 0;
  int64_t num_slots_used_ = 0;   // at most
  std::deque<uint32_t> counts_;  // ids of each batch
  int64_t first_batch_ = 0;
  // Shortly before the occurrences' numbers wrap, so that every run takes that path.
  uint32_t first_ = ChainRef::kUsed - 100;
  uint32_t num_entries_ = 0;
  // Of the batch that is pushed.
  Array<int64_t> ids_{*backend_};
  Array<uint32_t> previous_{*backend_};
  Array<uint32_t> place_{*backend_};
  Array<uint32_t> is_refused_{*backend_};
};

}  // namespace lsm::cache
