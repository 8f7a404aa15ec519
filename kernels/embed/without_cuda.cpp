// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/embed/gpu_distances.h"
#include "kernels/embed/gpu_edges.h"
#include "kernels/embed/gpu_losses.h"
#include "kernels/embed/gpu_updates.h"

namespace lsm {

void form_queries_on_gpu(const EdgeBatch&, const EdgeQueries&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
void edge_gradients_on_gpu(const EdgeBatch&, const EdgeGradients&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}

void distances_on_gpu(const DistanceChunks&, float*, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
void distance_gradients_on_gpu(const DistanceChunks&, const DistanceGradients&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}

void losses_on_gpu(const ScoredEdges&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}

void update_rows_on_gpu(const SortedGradients&, const AdagradTable&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
void sum_rows_on_gpu(const SortedGradients&, float*, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}

}  // namespace lsm
