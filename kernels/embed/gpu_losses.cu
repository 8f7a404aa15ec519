// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/gpu_losses.h"

#include "kernels/core/cuda_launch.h"
#include "kernels/embed/losses_on_backend.h"

namespace lsm {

void losses_on_gpu(const ScoredEdges& edges, int device, intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  run_losses(launcher, edges);
}

}  // namespace lsm
