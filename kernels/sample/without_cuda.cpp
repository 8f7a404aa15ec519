// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/sample/gpu_sampler.h"

namespace lsm {

std::unique_ptr<GpuSampler> make_gpu_sampler(const GpuGraph&, int, double) {
  throw_without_cuda("sampling on a GPU");
}

}  // namespace lsm
