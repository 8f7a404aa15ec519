// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/simulate.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace lsm::cache {

std::vector<Counters> simulate(Batches batches, const PlannerConfig& config,
                               const PlannerInput& input, std::shared_ptr<ThreadPool> pool) {
  PlannerConfig used = config;
  const PolicyKind kind = policy_kind(config.policy);
  const bool has_victims = victim_mode(config.victim_mode) != VictimMode::kNone;
  PlannerInput with_trace = input;
  if (kind == PolicyKind::kBelady) with_trace.trace = batches;
  // Nothing uses the window's contents then.
  if (!needs_window(config.policy) && !has_victims) used.window = std::min<int64_t>(used.window, 1);

  Planner planner(used, with_trace, std::move(pool));
  const int64_t window = std::max<int64_t>(used.window, 1);
  const int64_t num_batches = static_cast<int64_t>(batches.size());
  std::vector<Counters> counters;
  counters.reserve(batches.size());
  Plan plan;
  for (int64_t t = 0; t < num_batches; ++t) {
    while (planner.num_pushed() < std::min(t + window, num_batches)) {
      planner.push(batches[planner.num_pushed()]);
    }
    planner.plan(&plan);
    counters.push_back(plan.counters);
  }
  return counters;
}

}  // namespace lsm::cache
