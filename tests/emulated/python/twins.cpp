// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// In place of the twins: the code that they stand for, on the emulated GPU. Their callers pass any
// host memory, which this GPU reaches with LSM_EMULATED_PAGEABLE set.
#include "cache/gpu_executor.h"
#include "cache/gpu_set_cache.h"
#include "kernels/core/cuda_check.h"
#include "kernels/embed/gpu_distances.h"
#include "kernels/embed/gpu_edges.h"
#include "kernels/embed/gpu_losses.h"
#include "kernels/embed/gpu_updates.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"
#include "kernels/sample/gpu_sampler.h"

namespace {

constexpr int kDevice = 1;
constexpr double kTimeoutSecs = 60;

/// Calls queue(stream), and waits.
template <class Queue>
void in_stream(const Queue& queue) {
  const lsm::CudaStream stream(kDevice);
  queue(reinterpret_cast<intptr_t>(stream.get()));
  lsm::check_cuda(cudaStreamSynchronize(stream.get()), "kernels");
}

}  // namespace

namespace lsm {

std::unique_ptr<GpuSampler> make_twin_sampler(const GpuGraph& graph, bool) {
  return make_gpu_sampler(graph, kDevice, kTimeoutSecs);
}

std::unique_ptr<GpuExecutor> make_twin_executor(const GpuExecutorOptions& options, Storage& storage,
                                                std::span<const int64_t> static_rows,
                                                std::span<const int64_t> constant_rows) {
  return make_gpu_executor(options, storage, static_rows, constant_rows, kDevice);
}

void gather_by_twin(const GpuGather& gather, LineLocks locks) {
  in_stream([&](intptr_t stream) { gather_on_gpu(gather, locks, kDevice, stream); });
}

void update_rows_by_twin(const SortedGradients& gradients, const AdagradTable& table) {
  in_stream([&](intptr_t stream) { update_rows_on_gpu(gradients, table, kDevice, stream); });
}

void sum_rows_by_twin(const SortedGradients& gradients, float* out) {
  in_stream([&](intptr_t stream) { sum_rows_on_gpu(gradients, out, kDevice, stream); });
}

void form_queries_by_twin(const EdgeBatch& edges, const EdgeQueries& out) {
  in_stream([&](intptr_t stream) { form_queries_on_gpu(edges, out, kDevice, stream); });
}

void edge_gradients_by_twin(const EdgeBatch& edges, const EdgeGradients& gradients) {
  in_stream([&](intptr_t stream) { edge_gradients_on_gpu(edges, gradients, kDevice, stream); });
}

void distances_by_twin(const DistanceChunks& rows, float* scores) {
  in_stream([&](intptr_t stream) { distances_on_gpu(rows, scores, kDevice, stream); });
}

void distance_gradients_by_twin(const DistanceChunks& rows, const DistanceGradients& gradients) {
  in_stream([&](intptr_t stream) { distance_gradients_on_gpu(rows, gradients, kDevice, stream); });
}

void losses_by_twin(const ScoredEdges& edges) {
  in_stream([&](intptr_t stream) { losses_on_gpu(edges, kDevice, stream); });
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
