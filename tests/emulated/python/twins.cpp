// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// In place of the twins: the code that they stand for, on the emulated GPU. Their callers pass any
// host memory, which this GPU reaches with LSM_EMULATED_PAGEABLE set.
#include "cache/gpu_executor.h"
#include "cache/gpu_set_cache.h"
#include "kernels/core/cuda_check.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"
#include "kernels/sample/gpu_sampler.h"

namespace {

constexpr int kDevice = 1;
constexpr double kTimeoutSecs = 60;

}  // namespace

namespace lsm {

std::unique_ptr<GpuSampler> make_twin_sampler(const GpuGraph& graph, std::vector<int64_t> fanouts,
                                              const Sampling& sampling, bool) {
  return make_gpu_sampler(graph, std::move(fanouts), sampling, kDevice, kTimeoutSecs);
}

std::unique_ptr<GpuExecutor> make_twin_executor(const GpuExecutorOptions& options, Storage& storage,
                                                std::span<const int64_t> static_ids,
                                                std::span<const int64_t> constant_ids) {
  return make_gpu_executor(options, storage, static_ids, constant_ids, kDevice);
}

void gather_by_twin(const GpuGather& gather, LineLocks locks) {
  const CudaStream stream(kDevice);
  gather_on_gpu(gather, locks, kDevice, reinterpret_cast<intptr_t>(stream.get()));
  check_cuda(cudaStreamSynchronize(stream.get()), "gather");
}

std::unique_ptr<GpuScatter> make_twin_scatter() {
  return make_gpu_scatter(kDevice, kTimeoutSecs);
}

}  // namespace lsm

namespace lsm::cache {

std::unique_ptr<GpuSetCache> make_twin_set_cache(const PlannerConfig& config, Scores scores,
                                                 SetCachePlace) {
  return make_gpu_set_cache(config, scores, kDevice, kTimeoutSecs);
}

}  // namespace lsm::cache
