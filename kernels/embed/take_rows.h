// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Copies embeddings by number, without the state of the optimiser that follows them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// `num_rows` rows of `dim` floats, the first floats of which are `stride` apart.
struct FloatRows {
  const float* data;
  int64_t num_rows;
  int64_t dim;
  int64_t stride;
};

/// out[i] = table[ids[i]]; `out`: [ids.size(), dim], without overlap. Throws ArgumentError for an
/// id out of range before any copy.
void take_rows(const FloatRows& table, std::span<const int64_t> ids, float* out, ThreadPool& pool);

}  // namespace lsm
