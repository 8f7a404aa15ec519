// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Chooses LABOR's in-edges of one node on the host. Few neighbours of a node can have one of its
// smallest draws. A limit that slightly more than enough draws fall below excludes the others
// without a branch. If too few fall below, the limit is raised.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/sample/labor.h"
#include "kernels/sample/labor_simd.h"

namespace lsm {

/// Keeps its memory from node to node. Not thread-safe.
class LaborChoice {
 public:
  explicit LaborChoice(const SourceDraws& draws) : draws_(draws) {}

  /// Writes the positions of the `count` smallest (draw, position) of `sources` [degree], in
  /// ascending order and with `first` added, to `edges`. 0 < count < degree.
  template <class Id>
  void choose(const Id* sources, uint32_t degree, uint32_t count, int64_t first, int64_t* edges) {
    double expected = count + 2.5 * std::sqrt(static_cast<double>(count)) + 2;
    do {
      const double limit = std::min(expected / degree * 0x1p32, 0x1p32);
      collect(sources, degree, static_cast<uint64_t>(limit));
      expected *= 2;
    } while (num_below_ < count);
    if (num_below_ > kMaxRanked || !keep_ranked(count, first, edges)) {
      keep_sorted(count, first, edges);
    }
  }

 private:
  static constexpr uint32_t kChunk = 256;

  /// Records the neighbours whose draw is below `limit`.
  template <class Id>
  void collect(const Id* sources, uint32_t degree, uint64_t limit) {
    uint32_t drawn[kChunk];
    num_below_ = 0;
    for (uint32_t begin = 0; begin < degree; begin += std::min(kChunk, degree - begin)) {
      const uint32_t size = std::min(kChunk, degree - begin);
      labor_draws(draws_, sources + begin, size, drawn);
      if (below_.size() < num_below_ + kChunk) below_.resize(2 * below_.size() + kChunk);
      if (positions_.size() < below_.size()) positions_.resize(below_.size());
      for (uint32_t i = 0; i < size; ++i) {
        below_[num_below_] = drawn[i];
        positions_[num_below_] = begin + i;
        num_below_ += drawn[i] < limit;
      }
    }
  }

  /// Returns false if equal draws leave the smallest undetermined.
  bool keep_ranked(uint32_t count, int64_t first, int64_t* edges) {
    alignas(64) uint32_t ranks[kMaxRanked];
    const int size = static_cast<int>(num_below_);
    std::fill(below_.begin() + size, below_.begin() + (size + 15) / 16 * 16, UINT32_MAX);
    rank_draws(below_.data(), size, ranks);
    uint32_t kept[kMaxRanked];
    uint32_t num_kept = 0;
    for (int i = 0; i < size; ++i) {
      kept[num_kept] = positions_[i];
      num_kept += ranks[i] < count;
    }
    if (num_kept != count) return false;
    for (uint32_t i = 0; i < count; ++i) edges[i] = first + kept[i];
    return true;
  }

  void keep_sorted(uint32_t count, int64_t first, int64_t* edges) {
    order_.resize(num_below_);
    std::iota(order_.begin(), order_.end(), size_t{0});
    const auto end = order_.begin() + count;
    // Recorded in the order of positions, so the number stands for the position.
    std::nth_element(order_.begin(), end - 1, order_.end(), [&](size_t a, size_t b) {
      return below_[a] != below_[b] ? below_[a] < below_[b] : a < b;
    });
    std::sort(order_.begin(), end);
    for (uint32_t i = 0; i < count; ++i) edges[i] = first + positions_[order_[i]];
  }

  const SourceDraws draws_;
  std::vector<uint32_t> below_;  // [num_below_], and room for a chunk
  std::vector<uint32_t> positions_;
  size_t num_below_ = 0;
  std::vector<size_t> order_;
};

}  // namespace lsm
