// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/core/check.h"
#include "kernels/embed/edges_functors.h"

namespace lsm {

/// Calls run.template of<Model>() for the member that is `model`. Returns false without one.
template <class Run, class... Models>
bool run_one(TypeList<Models...>, const EdgeModel& model, const Run& run) {
  return ((Models::kModel == model && (run.template of<Models>(), true)) || ...);
}

template <class Run>
void with_model(const EdgeModel& model, const Run& run) {
  check_argument(run_one(EdgeModels{}, model, run), "model: has no kernels on a GPU");
}

template <class Backend>
struct RunFormQueries {
  Backend& backend;
  const EdgeBatch& edges;
  const EdgeQueries& out;

  template <class Model>
  void of() const {
    backend.for_each_warp(2 * edges.count, FormQueries<Model>{edges, out});
  }
};

template <class Backend>
struct RunEdgeGradients {
  Backend& backend;
  const EdgeBatch& edges;
  const EdgeGradients& gradients;

  template <class Model>
  void of() const {
    backend.for_each_warp(edges.count, EdgeBackward<Model>{edges, gradients});
  }
};

}  // namespace lsm
