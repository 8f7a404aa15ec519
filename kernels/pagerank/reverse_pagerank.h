// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "kernels/core/tensor_view.h"
#include "kernels/core/thread_pool.h"

namespace lsm {

struct PagerankOptions {
  int iterations = 20;
  double damping = 0.85;
  /// Flag that ends the computation soon after it becomes true; may be null.
  const std::atomic<bool>* stop = nullptr;
};

/// Reverse PageRank: the probability that a walk in the direction of sampling meets a node. Mass 1
/// starts at the training nodes, uniformly. In each iteration node v passes `damping` of its mass
/// to its in-neighbours in equal parts; all other mass (1 - damping, and all mass of nodes without
/// in-neighbours) returns to the training nodes, uniformly. Writes the masses after the last
/// iteration to `scores` float32 [N]. Returns false if it was stopped before.
///
/// `indptr` int64 [N + 1], `indices` int32 or int64 [E], `train_ids` not empty. Throws
/// ArgumentError for bad input. Takes 16 bytes per node besides the graph.
///
/// Masses are integers in units of 2^-62. Their sums do not depend on the order, so the result is
/// the same bit for bit for any number of threads, and mass is conserved exactly. Source: Page et
/// al. 1999; reversed and weighted as in LSM-GNN, section 4.2.
bool reverse_pagerank(const TensorView& indptr, const TensorView& indices,
                      std::span<const int64_t> train_ids, const PagerankOptions& options,
                      std::span<float> scores, ThreadPool& pool);

/// Writes the number of in-neighbours of each node to `scores` float32 [N].
void in_degree(std::span<const int64_t> indptr, std::span<float> scores, ThreadPool& pool);

}  // namespace lsm
