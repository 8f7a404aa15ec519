// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/host_backend.h"
#include "kernels/embed/edges_on_backend.h"
#include "kernels/embed/gpu_edges.h"

namespace lsm {

void form_queries_by_twin(const EdgeBatch& edges, const EdgeQueries& out) {
  HostBackend backend;
  with_model(edges.model, RunFormQueries<HostBackend>{backend, edges, out});
}

void edge_gradients_by_twin(const EdgeBatch& edges, const EdgeGradients& gradients) {
  HostBackend backend;
  with_model(edges.model, RunEdgeGradients<HostBackend>{backend, edges, gradients});
}

}  // namespace lsm
