// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/gpu_updates.h"

#include "kernels/core/cuda_launch.h"
#include "kernels/embed/updates_on_backend.h"

namespace lsm {

void update_rows_on_gpu(const SortedGradients& gradients, const AdagradTable& table, int device,
                        intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  run_sums(launcher, gradients, AdagradStep{table});
}

void sum_rows_on_gpu(const SortedGradients& gradients, float* out, int device, intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  run_sums(launcher, gradients, StoreSums{out, gradients.dim});
}

}  // namespace lsm
