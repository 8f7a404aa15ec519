// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_gather.h"

#include "kernels/core/cuda_launch.h"
#include "kernels/gather/gather_on_backend.h"

namespace lsm {

void gather_on_gpu(const GpuGather& gather, LineLocks locks, int device, intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  run_gather(launcher, gather, locks);
}

}  // namespace lsm
