// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Functors as kernels. For .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/cuda_check.h"
#include "kernels/core/lanes.h"

namespace lsm {
namespace cuda_launch_detail {

inline constexpr int kBlockThreads = 256;
// Enough blocks to fill any GPU; threads stride over further items.
inline constexpr int64_t kMaxBlocks = int64_t{1} << 16;

// __grid_constant__: threads index an array within f in parameter memory, not in copies of their
// own.
template <class F>
__global__ void __launch_bounds__(kBlockThreads)
    run_each(int64_t count, const __grid_constant__ F f) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
}

// Whole warps take an item, so that all lanes of a GpuWarp take part.
template <class F>
__global__ void __launch_bounds__(kBlockThreads)
    run_each_warp(int64_t count, const __grid_constant__ F f) {
  constexpr int kWarps = kBlockThreads / GpuWarp::kLanes;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  const GpuWarp warp;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / GpuWarp::kLanes; i < count;
       i += stride) {
    f(warp, i);
  }
}

}  // namespace cuda_launch_detail

/// Queues functors over items to a stream of the current device.
class CudaLauncher {
 public:
  using Warp = GpuWarp;

  explicit CudaLauncher(cudaStream_t stream, GpuShare share = GpuShare::kWhole)
      : stream_(stream),
        max_blocks_(share == GpuShare::kFar ? kFarBlocks : cuda_launch_detail::kMaxBlocks) {}

  /// Calls f(i) for i in [0, count).
  template <class F>
  void for_each(int64_t count, const F& f) const {
    using namespace cuda_launch_detail;
    if (count <= 0) return;
    run_each<<<num_blocks(count, kBlockThreads), kBlockThreads, 0, stream_>>>(count, f);
    check_cuda(cudaGetLastError(), "launch a kernel");
  }
  /// Calls f(warp, i) for i in [0, count).
  template <class F>
  void for_each_warp(int64_t count, const F& f) const {
    using namespace cuda_launch_detail;
    if (count <= 0) return;
    const unsigned blocks = num_blocks(count, kBlockThreads / GpuWarp::kLanes);
    run_each_warp<<<blocks, kBlockThreads, 0, stream_>>>(count, f);
    check_cuda(cudaGetLastError(), "launch a kernel of warps");
  }

 private:
  unsigned num_blocks(int64_t count, int64_t per_block) const {
    const int64_t blocks = (count + per_block - 1) / per_block;
    return static_cast<unsigned>(std::min(blocks, max_blocks_));
  }

  cudaStream_t stream_;
  int64_t max_blocks_;
};

}  // namespace lsm
