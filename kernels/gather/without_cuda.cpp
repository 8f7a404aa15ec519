// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"

namespace lsm {

void gather_on_gpu(const GpuGather&, LineLocks, int, intptr_t) {
  throw_without_cuda("a gather on a GPU");
}

std::unique_ptr<GpuScatter> make_gpu_scatter(int, double) {
  throw_without_cuda("a scatter on a GPU");
}

}  // namespace lsm
