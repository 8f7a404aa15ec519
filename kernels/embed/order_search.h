// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Search for the order in which partitions of embeddings enter and leave the buffers of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lsm {

/// `partitions` partitions of the nodes; each of `ranks` ranks holds `buffer` of them.
struct OrderShape {
  int partitions;
  int buffer;
  int ranks;
};

/// `partition` replaces the one in slot `slot`; slot -1: the rank loads nothing.
struct PartitionLoad {
  int slot;
  int partition;
};

/// The search ends after `restarts` depth-first searches of at most `nodes` nodes each.
struct OrderSearchLimits {
  uint64_t seed;
  int64_t restarts;
  int64_t nodes;
};

inline constexpr int kMostPartitions = 128;

/// Returns the turns of an order in which at least one rank holds each pair of partitions at some
/// time. Turn t is that of rank t % ranks in step t / ranks. Rank r starts with partitions [r *
/// buffer, (r + 1) * buffer). No rank evicts the partition that it loaded last, and no rank loads a
/// partition that a rank holds or evicts in the same step. A load could cover buffer - 1 new pairs;
/// all turns together cover at most `waste` fewer than that. Returns nothing if the search ends
/// without such an order. The result depends on the arguments only.
std::optional<std::vector<PartitionLoad>> search_order(const OrderShape& shape, int64_t waste,
                                                       const OrderSearchLimits& limits);

}  // namespace lsm
