// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/gpu_sampler.h"

#include "kernels/core/host_backend.h"
#include "kernels/sample/sampler_on_backend.h"

namespace lsm {

std::unique_ptr<GpuSampler> make_twin_sampler(const GpuGraph& graph, bool backwards) {
  return make_sampler_on_backend(std::make_unique<HostBackend>(backwards), graph);
}

}  // namespace lsm
