// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/links/pairs.h"

#include <bit>
#include <cstddef>
#include <limits>

#include "kernels/core/check.h"

namespace lsm {

IdPairs find_pairs(std::span<const int64_t> ids, std::span<const int64_t> wanted) {
  check_argument(ids.size() <= std::numeric_limits<int32_t>::max(), "ids: expected at most ",
                 std::numeric_limits<int32_t>::max());
  // Chains by hash: each bucket has its last column, each column the one before it.
  const int bits = std::bit_width(ids.size()) + 1;
  const auto bucket = [bits](int64_t id) {
    return static_cast<size_t>(static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u >> (64 - bits));
  };
  std::vector<int32_t> last(size_t{1} << bits, -1);
  std::vector<int32_t> before(ids.size());
  for (size_t column = 0; column < ids.size(); ++column) {
    int32_t& head = last[bucket(ids[column])];
    before[column] = head;
    head = static_cast<int32_t>(column);
  }
  IdPairs pairs;
  for (size_t row = 0; row < wanted.size(); ++row) {
    for (int32_t column = last[bucket(wanted[row])]; column >= 0; column = before[column]) {
      if (ids[column] != wanted[row]) continue;
      pairs.rows.push_back(static_cast<int64_t>(row));
      pairs.columns.push_back(column);
    }
  }
  return pairs;
}

void mask_equal(std::span<const int64_t> ids, std::span<const int64_t> wanted, float* scores) {
  const IdPairs pairs = find_pairs(ids, wanted);
  const auto num_columns = static_cast<int64_t>(ids.size());
  for (size_t i = 0; i < pairs.rows.size(); ++i) {
    scores[pairs.rows[i] * num_columns + pairs.columns[i]] =
        -std::numeric_limits<float>::infinity();
  }
}

}  // namespace lsm
