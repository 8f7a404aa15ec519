// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/embed/updates_functors.h"

namespace lsm {

template <class Backend, class Use>
void run_sums(Backend& backend, const SortedGradients& gradients, const Use& use) {
  backend.for_each_warp(gradients.count, SumPieces<Use>{gradients, use});
  backend.for_each_warp(SortedGradients::num_windows(gradients.count),
                        SumLongRows<Use>{gradients, use});
}

}  // namespace lsm
