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

TEST_CASE("GPU executor refuses plans of another place") {
  const auto planned = PlannerCase::draw(900, "lru", "none", kNumNodes);
  RowFiles files({kNumNodes, 8, 4096, 1});
  const auto storage = files.open("posix");
  const auto sets =
      cache::make_twin_set_cache(planned.config, planned.scores, cache::SetCachePlace::kTwin);
  sets->push({});
  cache::Decisions decisions;
  sets->decide(0, &decisions);
  cache::Plan plan;
  plan.on_gpu = decisions.moves;
  const CheckedExecutor checked =
      make_executor({planned.config.num_lines, 0, 0, 60}, *storage, planned);
  expect_throw<ArgumentError>("made where it is replayed",
                              [&] { checked.executor->replay(plan, {}, {}); });
}

}  // namespace

}  // namespace lsm::testing
