// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/gpu_set_cache.h"

#include "cache/set_cache_on_backend.h"
#include "kernels/core/cuda_backend.h"

namespace lsm::cache {

std::unique_ptr<GpuSetCache> make_gpu_set_cache(const PlannerConfig& config, Scores scores,
                                                int device, double timeout_secs) {
  return make_set_cache_on_backend(std::make_unique<CudaBackend>(device, timeout_secs), config,
                                   scores);
}

}  // namespace lsm::cache
