// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace lsm {

/// Throws ArgumentError, with `name` for the list, unless all of `rows` are in [0, bound).
void check_rows(const char* name, std::span<const int32_t> rows, int64_t bound);

}  // namespace lsm
