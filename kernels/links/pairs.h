// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Places of wanted ids in a list.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lsm {

/// Places of equal ids: ids[column] == wanted[row].
struct IdPairs {
  std::vector<int64_t> rows;
  std::vector<int64_t> columns;
};

/// Finds every pair of equal ids, rows ascending. Both lists may repeat ids.
IdPairs find_pairs(std::span<const int64_t> ids, std::span<const int64_t> wanted);

/// Makes scores [wanted.size(), ids.size()] -inf at every pair of equal ids.
void mask_equal(std::span<const int64_t> ids, std::span<const int64_t> wanted, float* scores);

}  // namespace lsm
