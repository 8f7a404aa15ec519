// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Options of sampling, and the name of a batch.
#pragma once

#include <cstdint>

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

enum class SamplingKind : uint8_t { kNeighbor, kLabor, kLadies };

struct Sampling {
  SamplingKind kind = SamplingKind::kNeighbor;
  // LABOR: one draw per source node for all hops.
  bool layer_dependency = false;
  // LABOR: iterations within which every source node's draw is renewed once. 1: each iteration.
  uint32_t batch_dependency = 1;
  // LADIES: weights whose expectation is the adjacency.
  bool debias = false;
};

}  // namespace lsm
