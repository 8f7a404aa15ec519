// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/embed/edges_functors.h"

namespace lsm {

/// Calls run.template of<kModel>() for the kModel that is `model`.
template <class Run>
void with_model(EdgeModel model, const Run& run) {
  switch (model) {
    case EdgeModel::kDot:
      return run.template of<EdgeModel::kDot>();
    case EdgeModel::kDistMult:
      return run.template of<EdgeModel::kDistMult>();
    case EdgeModel::kComplEx:
      return run.template of<EdgeModel::kComplEx>();
    case EdgeModel::kTransEL1:
      return run.template of<EdgeModel::kTransEL1>();
    case EdgeModel::kTransEL2:
      return run.template of<EdgeModel::kTransEL2>();
    case EdgeModel::kRotatE:
      return run.template of<EdgeModel::kRotatE>();
  }
}

template <class Backend>
struct RunFormQueries {
  Backend& backend;
  const EdgeBatch& edges;
  const EdgeQueries& out;

  template <EdgeModel kModel>
  void of() const {
    backend.for_each_warp(2 * edges.count, FormQueries<kModel>{edges, out});
  }
};

template <class Backend>
struct RunEdgeGradients {
  Backend& backend;
  const EdgeBatch& edges;
  const EdgeGradients& gradients;

  template <EdgeModel kModel>
  void of() const {
    backend.for_each_warp(edges.count, EdgeBackward<kModel>{edges, gradients});
  }
};

}  // namespace lsm
