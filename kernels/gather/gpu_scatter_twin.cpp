// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_scatter.h"

#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"
#include "kernels/gather/scatter_on_backend.h"

namespace lsm {

std::unique_ptr<GpuScatter> make_twin_scatter() {
  return std::make_unique<ScatterOnBackend<HostBackend>>(std::make_unique<HostBackend>());
}

#if !LSM_HAS_CUDA
std::unique_ptr<GpuScatter> make_gpu_scatter(int, double) {
  throw_without_cuda("a scatter on a GPU");
}
#endif

}  // namespace lsm
