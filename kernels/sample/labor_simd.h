// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LABOR's loops over a node's neighbours, in SIMD.
#pragma once

#include <cstdint>

#include "kernels/sample/labor.h"

namespace lsm {

/// Writes SourceDraws' draws of `ids` [count] to `out` [count].
void labor_draws(const SourceDraws& draws, const int32_t* ids, int64_t count, uint32_t* out);
void labor_draws(const SourceDraws& draws, const int64_t* ids, int64_t count, uint32_t* out);

constexpr int kMaxRanked = 64;

/// Writes to `ranks` the number of smaller `draws` of each. Both have kMaxRanked elements; those up
/// to `count`, rounded up to 16, are used.
void rank_draws(const uint32_t* draws, int count, uint32_t* ranks);

}  // namespace lsm
