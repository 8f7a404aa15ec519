// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"
#include "kernels/embed/gpu_losses.h"
#include "kernels/embed/losses_on_backend.h"

namespace lsm {

void losses_by_twin(const ScoredEdges& edges) {
  HostBackend backend;
  run_losses(backend, edges);
}

#if !LSM_HAS_CUDA
void losses_on_gpu(const ScoredEdges&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
#endif

}  // namespace lsm
