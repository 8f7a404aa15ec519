// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Queries and own scores of a batch of edges on a GPU, and the gradients of heads, tails and
// relations in one pass. Scores of negatives are computed elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/embed/edge_model.h"

namespace lsm {

/// True if there are kernels for the model.
bool has_gpu_kernels(const EdgeModel& model);

/// Penalties: cubes of floats, or of the moduli of complex numbers.
enum class Penalty : uint8_t { kNone, kFloats, kModuli };

/// Edges with both sides as targets, in memory of the device. Side 0: heads form queries, tails are
/// targets; side 1: the other way round.
struct EdgeBatch {
  EdgeModel model;
  bool inverse;  // side 1 inverts the relations of side 0
  int64_t count;
  int64_t dim;
  const float* entities;  // rows of `entity_stride` floats, of which `dim` are the embedding
  int64_t entity_stride;
  const float* relations;  // the same; null for kIdentity
  int64_t relation_stride;
  const int64_t* ends;           // [2, count]: heads, tails
  const int64_t* relation_rows;  // [2, count]: of side 0, of side 1
  const float* dropout;          // [2, count, dim]: factors of queries, or null
};

struct EdgeQueries {
  float* queries;    // [2, count, dim]
  float* positives;  // [2, count]: scores of the edges
};

struct EdgeGradients {
  const float* of_queries;    // [2, count, dim]: by negatives
  const float* of_positives;  // [2, count]
  float* of_ends;             // [2, count, dim]: of heads, of tails
  float* of_relations;        // [2, count, dim]: of side 0, of side 1; null for kIdentity
  float* losses;              // [2, count]: side 0 gets the edge's penalty added
  Penalty penalty;
  float weight;  // of a penalty, per edge and side
};

/// Both queue to `stream` (a cudaStream_t as a number) of GPU `device`. Throw std::runtime_error in
/// a build without CUDA.
void form_queries_on_gpu(const EdgeBatch& edges, const EdgeQueries& out, int device,
                         intptr_t stream);
void edge_gradients_on_gpu(const EdgeBatch& edges, const EdgeGradients& gradients, int device,
                           intptr_t stream);
/// The same by a host loop.
void form_queries_by_twin(const EdgeBatch& edges, const EdgeQueries& out);
void edge_gradients_by_twin(const EdgeBatch& edges, const EdgeGradients& gradients);

}  // namespace lsm
