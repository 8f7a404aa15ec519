// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Losses of edges against negatives on a GPU; gradients replace the scores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lsm {

/// Entities in the partition of an edge's query, whose scores are shifted; for kSoftmax.
struct OwnPartition {
  const int32_t* firsts;  // [count]: the first row of that partition; null for no shift
  int32_t rows;           // of a partition
  float shift;            // added to the scores
};

enum class EdgeLoss : uint8_t { kSoftmax, kLogistic, kMargin };

/// Scores of edges and their negatives, in memory of the device.
struct ScoredEdges {
  EdgeLoss loss;
  float margin;  // kMargin: how much higher than a negative an edge should score
  float shift;   // added to all scores
  int64_t count;
  int64_t num_negatives;
  int64_t chunk;             // edges that share negatives
  const int32_t* negatives;  // [chunks, num_negatives]: ids
  const int32_t* targets;    // [count]: the id that is no negative of the edge
  OwnPartition own;
  float* scores;     // [count, num_negatives]; becomes the gradient
  float* positives;  // [count]; becomes the gradient
  float* losses;     // [count]; written
};

/// Queues to `stream` (a cudaStream_t as a number) of GPU `device`. Throws std::runtime_error in a
/// build without CUDA.
void losses_on_gpu(const ScoredEdges& edges, int device, intptr_t stream);
/// The same by a host loop.
void losses_by_twin(const ScoredEdges& edges);

}  // namespace lsm
