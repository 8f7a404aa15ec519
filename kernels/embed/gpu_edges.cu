// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/gpu_edges.h"

#include "kernels/core/cuda_launch.h"
#include "kernels/embed/edges_on_backend.h"

namespace lsm {

void form_queries_on_gpu(const EdgeBatch& edges, const EdgeQueries& out, int device,
                         intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  with_model(edges.model, RunFormQueries<CudaLauncher>{launcher, edges, out});
}

void edge_gradients_on_gpu(const EdgeBatch& edges, const EdgeGradients& gradients, int device,
                           intptr_t stream) {
  use_device(device);
  CudaLauncher launcher(reinterpret_cast<cudaStream_t>(stream));
  with_model(edges.model, RunEdgeGradients<CudaLauncher>{launcher, edges, gradients});
}

}  // namespace lsm
