// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_scatter.h"

#include "kernels/core/cuda_backend.h"
#include "kernels/gather/scatter_on_backend.h"

namespace lsm {

std::unique_ptr<GpuScatter> make_gpu_scatter(int device, double timeout_secs) {
  return std::make_unique<ScatterOnBackend<CudaBackend>>(
      std::make_unique<CudaBackend>(device, timeout_secs));
}

}  // namespace lsm
