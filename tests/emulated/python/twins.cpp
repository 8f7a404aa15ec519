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

std::unique_ptr<DeviceSampler> make_twin_sampler(const DeviceGraph& graph,
                                                 std::vector<int64_t> fanouts,
                                                 const Sampling& sampling, bool) {
  return make_device_sampler(graph, std::move(fanouts), sampling, kDevice, kTimeoutSecs);
}

std::unique_ptr<DeviceExecutor> make_twin_executor(const DeviceExecutorOptions& options,
                                                   Storage& storage,
                                                   std::span<const int64_t> static_ids,
                                                   std::span<const int64_t> constant_ids) {
  return make_device_executor(options, storage, static_ids, constant_ids, kDevice);
}

void gather_by_twin(const DeviceGather& gather, LineLocks locks) {
  const CudaStream stream(kDevice);
  gather_on_device(gather, locks, kDevice, reinterpret_cast<intptr_t>(stream.get()));
  check_cuda(cudaStreamSynchronize(stream.get()), "gather");
}

}  // namespace lsm

namespace lsm::cache {

std::unique_ptr<BatchSets> make_twin_sets(const PlannerConfig& config, Scores scores, SetsPlace) {
  return make_device_sets(config, scores, kDevice, kTimeoutSecs);
}

}  // namespace lsm::cache

namespace lsm::comm {

std::unique_ptr<DeviceDelivery> make_twin_delivery() {
  return make_device_delivery(kDevice, kTimeoutSecs);
}

}  // namespace lsm::comm
