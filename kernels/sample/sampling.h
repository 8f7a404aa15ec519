// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Options of sampling, and the name of a batch.
#pragma once

#include <cstdint>
#include <variant>

namespace lsm {

/// Names one batch. Its sample is a function of this, the seeds and the graph, and of nothing else.
struct BatchName {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t iteration = 0;
  uint64_t rank = 0;
  uint64_t step = 0;  // iterations since the first of epoch 0; of use for batch_dependency only
};

/// kRecord: a sample includes the numbers of its edges in the graph.
enum class EdgeIds : uint8_t { kLeaveOut, kRecord };

/// Each node draws its neighbours by itself.
struct NeighborSampling {};

/// Every source node has one draw per hop: SourceDraws.
struct LaborSampling {
  // One draw per source node for all hops.
  bool layer_dependency = false;
  // Iterations within which every source node's draw is renewed once. 1: each iteration.
  uint32_t batch_dependency = 1;
};

/// A hop samples nodes for all its destinations together: choose_layer().
struct LadiesSampling {
  // Weights whose expectation is the adjacency.
  bool debias = false;
};

/// A kind of sampling, with its options. A HopSampler per kind draws hops on the host.
using Sampling = std::variant<NeighborSampling, LaborSampling, LadiesSampling>;

}  // namespace lsm
