// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"
#include "kernels/embed/distances_on_backend.h"
#include "kernels/embed/gpu_distances.h"

namespace lsm {

void distances_by_twin(const DistanceChunks& rows, float* scores) {
  HostBackend backend;
  with_comparator(rows.comparator, RunDistances<HostBackend>{backend, rows, scores});
}

void distance_gradients_by_twin(const DistanceChunks& rows, const DistanceGradients& gradients) {
  HostBackend backend;
  with_comparator(rows.comparator, RunDistanceGradients<HostBackend>{backend, rows, gradients});
}

#if !LSM_HAS_CUDA
void distances_on_gpu(const DistanceChunks&, float*, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
void distance_gradients_on_gpu(const DistanceChunks&, const DistanceGradients&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
#endif

}  // namespace lsm
