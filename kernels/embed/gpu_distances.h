// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Distances that no matrix product computes, on a GPU. The queries of a chunk meet its entities.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/embed/edge_model.h"

namespace lsm {

/// Rows of `dim` floats, in memory of the device.
struct DistanceChunks {
  Comparator comparator;  // kManhattan or kModulus
  int64_t chunks;
  int64_t num_queries;   // of a chunk
  int64_t num_entities;  // of a chunk
  int64_t dim;
  const float* queries;     // [chunks, num_queries, dim]
  const float* entities;    // [chunks, num_entities, dim]; gradients read these, and ...
  const float* transposed;  // [chunks, dim, num_entities]; ... scores these
};

struct DistanceGradients {
  const float* of_scores;  // [chunks, num_queries, num_entities]
  float* of_queries;       // [chunks, num_queries, dim]; written
  float* of_entities;      // [chunks, num_entities, dim]; written, or added to
  bool adds;               // to of_entities
};

/// Write `scores` [chunks, num_queries, num_entities], and gradients. Both queue to `stream` (a
/// cudaStream_t as a number) of GPU `device`. Throw std::runtime_error in a build without CUDA.
void distances_on_gpu(const DistanceChunks& rows, float* scores, int device, intptr_t stream);
void distance_gradients_on_gpu(const DistanceChunks& rows, const DistanceGradients& gradients,
                               int device, intptr_t stream);
/// The same by a host loop.
void distances_by_twin(const DistanceChunks& rows, float* scores);
void distance_gradients_by_twin(const DistanceChunks& rows, const DistanceGradients& gradients);

}  // namespace lsm
