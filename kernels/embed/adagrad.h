// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Adagrad (Duchi et al., 2011) for some rows of a table of embeddings.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// Rows of `width` floats: `dim` of the embedding, then state; sums of squared gradients if width
/// is 2 dim, one sum of their means if it is dim + 1.
struct AdagradTable {
  float* rows;
  int64_t num_rows;
  int64_t dim;
  int64_t width;
  float lr;
  float eps;
};

/// Updates the rows `ids`, which may repeat, by `gradients` [ids.size(), dim]. The gradients of a
/// row are added in their order, so that the result does not depend on the pool's threads. Throws
/// ArgumentError for an id out of range before any update.
void update_rows(const AdagradTable& table, std::span<const int64_t> ids, const float* gradients,
                 ThreadPool& pool);

}  // namespace lsm
