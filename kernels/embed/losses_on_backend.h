// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/embed/losses_functors.h"

namespace lsm {

template <class Backend>
void run_losses(Backend& backend, const ScoredEdges& edges) {
  switch (edges.loss) {
    case EdgeLoss::kSoftmax:
      return backend.for_each_warp(edges.count, SoftmaxLoss{edges});
    case EdgeLoss::kLogistic:
      return backend.for_each_warp(edges.count, MeanLoss<EdgeLoss::kLogistic>{edges});
    case EdgeLoss::kMargin:
      return backend.for_each_warp(edges.count, MeanLoss<EdgeLoss::kMargin>{edges});
  }
}

}  // namespace lsm
