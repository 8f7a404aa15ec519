// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Cross-entropy of an edge's score against the scores of its negatives.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// Returns the sum over edges of log(exp(positive) + sum of exp(negatives)) - positive, and
/// replaces the scores by their gradients. `negatives`: a row of `num_negatives` for each of
/// `positives`; one of -inf gets a gradient of 0. The result does not depend on the pool's threads.
double softmax_loss(std::span<float> positives, float* negatives, int64_t num_negatives,
                    ThreadPool& pool);

}  // namespace lsm
