// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Plans of every policy and mode, as the host makes them.
#include <doctest/doctest.h>

#include "cache/policies.h"
#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

TEST_CASE("GPU planner") {
  uint64_t seed = 100;
  for (const std::string& policy : cache::policy_names()) {
    for (const char* mode : {"none", "queues", "pool"}) {
      ++seed;
      auto planned = PlannerCase::draw(seed, policy, mode, kNumNodes);
      planned.batches.resize(std::min<size_t>(planned.batches.size(), is_part() ? 6 : 20));
      check_plans(planned,
                  cache::make_gpu_set_cache(planned.config, planned.scores, kDevice, kTimeoutSecs));
    }
  }
}

}  // namespace

}  // namespace lsm::testing
