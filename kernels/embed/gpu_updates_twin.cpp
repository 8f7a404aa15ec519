// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
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

}  // namespace lsm
