// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"
#include "kernels/embed/gpu_updates.h"
#include "kernels/embed/updates_on_backend.h"

namespace lsm {

void update_rows_by_twin(const SortedGradients& gradients, const AdagradTable& table) {
  HostBackend backend;
  run_sums(backend, gradients, AdagradStep{table});
}

void sum_rows_by_twin(const SortedGradients& gradients, float* out) {
  HostBackend backend;
  run_sums(backend, gradients, StoreSums{out, gradients.dim});
}

#if !LSM_HAS_CUDA
void update_rows_on_gpu(const SortedGradients&, const AdagradTable&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
void sum_rows_on_gpu(const SortedGradients&, float*, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
#endif

}  // namespace lsm
