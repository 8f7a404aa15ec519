// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/gpu_executor.h"
#include "cache/gpu_set_cache.h"
#include "kernels/core/check.h"

namespace lsm::cache {

std::unique_ptr<GpuSetCache> make_gpu_set_cache(const PlannerConfig&, Scores, int, double) {
  throw_without_cuda("a planner on a GPU");
}

}  // namespace lsm::cache

namespace lsm {

std::unique_ptr<GpuExecutor> make_gpu_executor(const GpuExecutorOptions&, Storage&,
                                               std::span<const int64_t>, std::span<const int64_t>,
                                               int) {
  throw_without_cuda("a cache in GPU memory");
}

}  // namespace lsm
