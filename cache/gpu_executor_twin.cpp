// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/gpu_executor.h"

#include "cache/executor_on_backend.h"
#include "kernels/core/host_backend.h"

namespace lsm {

std::unique_ptr<GpuExecutor> make_twin_executor(const GpuExecutorOptions& options, Storage& storage,
                                                std::span<const int64_t> static_rows,
                                                std::span<const int64_t> constant_rows) {
  const auto backend = [] { return std::make_unique<HostBackend>(); };
  return std::make_unique<ExecutorOnBackend<HostBackend>>(
      ExecutorBackends<HostBackend>{backend(), backend(), backend()}, options, storage, static_rows,
      constant_rows);
}

}  // namespace lsm
