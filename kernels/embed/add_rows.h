// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Adds rows to a table, by id.
#pragma once

#include <cstdint>
#include <span>

namespace lsm {

/// Adds rows[i] to table[ids[i]], one after the other. `table`: [num_rows, dim]; `rows`:
/// [ids.size(), dim]. Throws ArgumentError for an id out of range before any addition.
void add_rows(float* table, int64_t num_rows, int64_t dim, std::span<const int64_t> ids,
              const float* rows);

}  // namespace lsm
