// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Chooses in-edges of one node in proportion to their weights, without replacement: those with the
// smallest -log(u) / weight, u uniform in (0, 1). The first of them is taken in proportion to its
// weight, the next in proportion among the others, and so on (Efraimidis and Spirakis, "Weighted
// random sampling with a reservoir", IPL 2006).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "kernels/core/philox.h"
#include "kernels/sample/arrival.h"

namespace lsm {

/// Keeps its memory from node to node. Not thread-safe.
class WeightedChoice {
 public:
  /// Writes the positions of `count` edges, in ascending order and with `first` added, to `edges`.
  /// `random`: one word for each weight is taken. 0 < count < the number of weights, of which at
  /// least `count` are positive.
  void choose(PhiloxStream& random, std::span<const float> weights, uint32_t count, int64_t first,
              int64_t* edges) {
    arrivals_.resize(weights.size());
    for (uint32_t i = 0; i < arrivals_.size(); ++i) {
      const uint32_t word = random.next();
      arrivals_[i] = {weights[i] > 0 ? arrival(word, weights[i]) : kNever, i};
    }
    const auto end = arrivals_.begin() + count;
    std::nth_element(arrivals_.begin(), end - 1, arrivals_.end());
    for (uint32_t i = 0; i < count; ++i) edges[i] = first + arrivals_[i].second;
    std::sort(edges, edges + count);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  std::vector<std::pair<double, uint32_t>> arrivals_;  // time and position
};

}  // namespace lsm
