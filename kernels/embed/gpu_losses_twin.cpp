// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/host_backend.h"
#include "kernels/embed/gpu_losses.h"
#include "kernels/embed/losses_on_backend.h"

namespace lsm {

void losses_by_twin(const ScoredEdges& edges) {
  HostBackend backend;
  run_losses(backend, edges);
}

}  // namespace lsm
