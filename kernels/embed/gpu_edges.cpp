// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/gpu_edges.h"

#include "kernels/embed/edges_on_backend.h"

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

}  // namespace lsm
