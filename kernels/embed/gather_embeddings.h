// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Copies embeddings by id, without the optimiser state that follows them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// `num_rows` rows of `dim` floats, which begin `stride` floats apart.
struct FloatRows {
  const float* data;
  int64_t num_rows;
  int64_t dim;
  int64_t stride;
};

/// Copies table[ids[i]] to row i of `out` [ids.size(), dim], which must not overlap. Throws
/// ArgumentError for an id out of range before any copy.
void gather_embeddings(const FloatRows& table, std::span<const int64_t> ids, float* out,
                       ThreadPool& pool);

}  // namespace lsm
