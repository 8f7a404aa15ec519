// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Distances that no matrix product computes, between every query and every entity.
#pragma once

#include <cstdint>

#include "kernels/core/thread_pool.h"
#include "kernels/embed/edge_model.h"

namespace lsm {

/// Rows of `dim` floats.
struct QueriesAndEntities {
  const float* queries;
  const float* entities;
  int64_t num_queries;
  int64_t num_entities;
  int64_t dim;
};

/// Writes scores [num_queries, num_entities], by kManhattan or kModulus.
void distance_scores(Comparator comparator, const QueriesAndEntities& rows, float* scores,
                     ThreadPool& pool);

/// Writes the gradients of queries and entities, given those of the scores. A difference of 0 has
/// the subgradient 0. Every pair is visited twice, once for each of its rows, so that no two
/// threads add to the same row.
void distance_scores_backward(Comparator comparator, const QueriesAndEntities& rows,
                              const float* gradient, float* of_queries, float* of_entities,
                              ThreadPool& pool);

}  // namespace lsm
