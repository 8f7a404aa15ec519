// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/gpu_set_cache.h"

#include "cache/set_cache_on_backend.h"
#include "kernels/core/host_backend.h"

namespace lsm::cache {

std::unique_ptr<GpuSetCache> make_twin_set_cache(const PlannerConfig& config, Scores scores,
                                                 SetCachePlace place) {
  auto backend = std::make_unique<HostBackend>(place == SetCachePlace::kTwinBackwards);
  return make_set_cache_on_backend(std::move(backend), config, scores);
}

}  // namespace lsm::cache
