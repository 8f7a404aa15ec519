// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_gather.h"

#include "kernels/core/host_backend.h"
#include "kernels/gather/gather_on_backend.h"

namespace lsm {

void gather_by_twin(const GpuGather& gather, LineLocks locks) {
  HostBackend backend;
  run_gather(backend, gather, locks);
}

}  // namespace lsm
