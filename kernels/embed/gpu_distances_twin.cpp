// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
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

}  // namespace lsm
