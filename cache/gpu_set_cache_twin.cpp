// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/gpu_set_cache.h"

#include "cache/set_cache_on_backend.h"
#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"

namespace lsm::cache {

std::unique_ptr<BatchSets> make_twin_sets(const PlannerConfig& config, Scores scores,
                                          SetsPlace place) {
  auto backend = std::make_unique<HostBackend>(place == SetsPlace::kTwinBackwards);
  return make_backend_sets(std::move(backend), config, scores);
}

#if !LSM_HAS_CUDA
std::unique_ptr<BatchSets> make_device_sets(const PlannerConfig&, Scores, int, double) {
  throw_without_cuda("a planner on a GPU");
}
#endif

}  // namespace lsm::cache
