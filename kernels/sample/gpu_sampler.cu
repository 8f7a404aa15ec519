// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/gpu_sampler.h"

#include "kernels/core/cuda_backend.h"
#include "kernels/sample/sampler_on_backend.h"

namespace lsm {

std::unique_ptr<GpuSampler> make_gpu_sampler(const GpuGraph& graph, int device,
                                             double timeout_secs) {
  return make_sampler_on_backend(std::make_unique<CudaBackend>(device, timeout_secs), graph);
}

}  // namespace lsm
