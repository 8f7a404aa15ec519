// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// Copies row ids[i] of `source` to row i of `out`; rows are `row_bytes` long and packed.
/// Precondition: every id is a row of `source`, and `out` holds ids.size() rows that do not overlap
/// `source`. Blocks until done.
void gather_rows(const std::byte* source, int64_t row_bytes, std::span<const int64_t> ids,
                 std::byte* out, ThreadPool& pool);

/// Throws ArgumentError, which names the first bad id, unless all of `ids` are in [0, bound).
void check_ids(const char* name, std::span<const int64_t> ids, int64_t bound);

}  // namespace lsm
