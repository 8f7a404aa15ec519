// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/gpu_distances.h"

#include "kernels/core/cuda_launch.h"
#include "kernels/embed/distances_on_backend.h"

namespace lsm {

void distances_on_gpu(const DistanceChunks& rows, float* scores, int device, intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  with_comparator(rows.comparator, RunDistances<CudaLauncher>{launcher, rows, scores});
}

void distance_gradients_on_gpu(const DistanceChunks& rows, const DistanceGradients& gradients,
                               int device, intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  with_comparator(rows.comparator, RunDistanceGradients<CudaLauncher>{launcher, rows, gradients});
}

}  // namespace lsm
