// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/gpu_executor.h"

#include "cache/executor_on_backend.h"
#include "kernels/core/cuda_backend.h"

namespace lsm {

std::unique_ptr<GpuExecutor> make_gpu_executor(const GpuExecutorOptions& options, Storage& storage,
                                               std::span<const int64_t> static_rows,
                                               std::span<const int64_t> constant_rows, int device) {
  const auto backend = [&](GpuShare share) {
    return std::make_unique<CudaBackend>(device, options.timeout_secs, share);
  };
  return std::make_unique<ExecutorOnBackend<CudaBackend>>(
      ExecutorBackends<CudaBackend>{backend(GpuShare::kWhole), backend(GpuShare::kFar),
                                    backend(GpuShare::kFar)},
      options, storage, static_rows, constant_rows);
}

}  // namespace lsm
