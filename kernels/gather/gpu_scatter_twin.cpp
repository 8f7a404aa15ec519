// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_scatter.h"

#include "kernels/core/host_backend.h"
#include "kernels/gather/scatter_on_backend.h"

namespace lsm {

std::unique_ptr<GpuScatter> make_twin_scatter() {
  return std::make_unique<ScatterOnBackend<HostBackend>>(std::make_unique<HostBackend>());
}

}  // namespace lsm
