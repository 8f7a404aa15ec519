// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Rows of plans that executors on a GPU replay, in all ways and of many sizes.
#include <doctest/doctest.h>

#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

TEST_CASE("GPU executor") {
  const std::vector<int64_t> all = {1,   2,   3,   7,   16,   20,   48,   100,
                                    129, 200, 300, 512, 1000, 2048, 4095, 4096};
  for (const int64_t row_bytes : is_part() ? std::vector<int64_t>{3, 48} : all) {
    check_rows_of_plans(row_bytes, make_executor);
    check_rows_of_plans(row_bytes, make_planning_executor);
  }
}

}  // namespace

}  // namespace lsm::testing
