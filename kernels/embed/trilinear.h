// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Queries and own scores of edges, and their gradients, for models whose score is an inner product:
// one pass over the rows of a chunk, instead of one for each step.
#pragma once

#include <cstdint>

#include "kernels/core/thread_pool.h"
#include "kernels/embed/edge_model.h"

namespace lsm {

/// True for the operators of models whose score is an inner product.
bool has_host_kernels(const EdgeModel& model);

/// Rows of `dim` floats. `entities[i]` and `relations[i]` make the query of edge i, which is scored
/// against `targets[i]`. `relations`: null for Operator::kIdentity.
struct EdgeRows {
  Operator query;
  bool inverse;  // conj(b) instead of b, for kComplexProduct
  int64_t num_edges;
  int64_t dim;
  const float* entities;
  const float* relations;
  const float* targets;
};

/// Writes the queries [num_edges, dim] and their inner products with the targets [num_edges].
void make_queries(const EdgeRows& edges, float* queries, float* scores, ThreadPool& pool);

/// Writes the gradients of entities and targets, or adds them, given those of the edges' own scores
/// and, in `of_queries`, those of queries by negatives. Replaces `of_queries` by the gradients of
/// relations; for Operator::kIdentity, by any values.
struct QueryGradients {
  const float* of_scores;
  float* of_queries;
  float* of_entities;
  float* of_targets;
  bool add;
};
void query_gradients(const EdgeRows& edges, const float* queries, const QueryGradients& gradients,
                     ThreadPool& pool);

}  // namespace lsm
