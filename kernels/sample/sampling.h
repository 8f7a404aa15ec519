// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Options of sampling, and the name of a batch.
#pragma once

#include <cstdint>
#include <variant>

#include "kernels/core/hash.h"

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

/// A kind of sampling, with its options. On the host, NodeHops or LayerHops sample its hops.
using Sampling = std::variant<NeighborSampling, LaborSampling, LadiesSampling>;

/// The name under which edges of a type are drawn. Types draw independently, but LABOR's draws
/// belong to the sources: all types of edges share those of a type of sources.
inline BatchName name_of_type(const BatchName& batch, const Sampling& kind, uint64_t edge_type,
                              uint64_t source) {
  const uint64_t number = std::holds_alternative<LaborSampling>(kind) ? source : edge_type;
  BatchName name = batch;
  if (number > 0) name.seed = mix64(batch.seed ^ number * 0x9E3779B97F4A7C15ULL);
  return name;
}

}  // namespace lsm
