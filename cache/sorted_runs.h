// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Keys in order of value, for many that come and go at once. A heap would touch a cache line a
// level for each; sorted runs, merged as they grow, are read and written in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/core/huge_pages.h"

namespace lsm::cache {

/// A log-structured merge tree of keys in memory. The lowest key is removed first. Not thread-safe.
class SortedRuns {
 public:
  bool is_empty() const { return size_ == 0; }
  int64_t size() const { return size_; }

  void add(uint64_t key) {
    added_.push_back(key);
    ++size_;
  }

  /// The lowest key. Precondition: not empty.
  uint64_t lowest() {
    if (!added_.empty()) settle();
    return runs_[lowest_].back();
  }
  /// The key `count` places after lowest() in its run, likely to be the lowest soon; the last one
  /// if there are fewer. Precondition: lowest() was called after the last add().
  uint64_t soon(size_t count) const {
    const Run& run = runs_[lowest_];
    return run[run.size() - std::min(run.size(), count + 1)];
  }
  /// Removes lowest(), which was called after the last add().
  void remove_lowest() {
    --size_;
    runs_[lowest_].pop_back();
    if (runs_[lowest_].empty()) runs_.erase(runs_.begin() + static_cast<int64_t>(lowest_));
    find_lowest();
  }

  void clear() {
    added_.clear();
    runs_.clear();
    size_ = 0;
  }

  int64_t num_bytes() const {
    size_t keys = added_.capacity() + scratch_.capacity();
    for (const Run& run : runs_) keys += run.capacity();
    return static_cast<int64_t>(keys * sizeof(uint64_t));
  }

 private:
  using Run = HugePageVector<uint64_t>;  // falling

  /// Makes a run of the keys that were added. A run is at most half as long as the one before it
  /// was when it came, so there are few.
  void settle() {
    std::ranges::sort(added_, std::greater());
    runs_.push_back(added_);
    added_.clear();
    while (runs_.size() > 1 && 2 * runs_.back().size() > runs_[runs_.size() - 2].size()) {
      const Run& last = runs_.back();
      Run& before = runs_[runs_.size() - 2];
      scratch_.resize(before.size() + last.size());
      std::ranges::merge(before, last, scratch_.begin(), std::greater());
      before.swap(scratch_);
      runs_.pop_back();
    }
    find_lowest();
  }

  void find_lowest() {
    lowest_ = 0;
    for (size_t i = 1; i < runs_.size(); ++i) {
      if (runs_[i].back() < runs_[lowest_].back()) lowest_ = i;
    }
  }

  std::vector<Run> runs_;  // none is empty
  Run added_;              // not sorted
  Run scratch_;
  size_t lowest_ = 0;  // the run whose last key is the lowest
  int64_t size_ = 0;
};

}  // namespace lsm::cache
