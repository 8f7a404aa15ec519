// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"
#include "kernels/embed/edges_on_backend.h"
#include "kernels/embed/gpu_edges.h"

namespace lsm {
namespace {

struct Nothing {
  template <class Model>
  void of() const {}
};

}  // namespace

bool has_gpu_kernels(const EdgeModel& model) {
  return run_one(EdgeModels{}, model, Nothing{});
}

void form_queries_by_twin(const EdgeBatch& edges, const EdgeQueries& out) {
  HostBackend backend;
  with_model(edges.model, RunFormQueries<HostBackend>{backend, edges, out});
}

void edge_gradients_by_twin(const EdgeBatch& edges, const EdgeGradients& gradients) {
  HostBackend backend;
  with_model(edges.model, RunEdgeGradients<HostBackend>{backend, edges, gradients});
}

#if !LSM_HAS_CUDA
void form_queries_on_gpu(const EdgeBatch&, const EdgeQueries&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
void edge_gradients_on_gpu(const EdgeBatch&, const EdgeGradients&, int, intptr_t) {
  throw_without_cuda("embeddings on a GPU");
}
#endif

}  // namespace lsm
