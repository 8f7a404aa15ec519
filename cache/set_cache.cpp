// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/set_cache.h"

#include <type_traits>

#include "cache/policies.h"
#include "cache/policy_cache.h"

namespace lsm::cache {

std::unique_ptr<SetCache> make_set_cache(const PlannerConfig& config, Scores scores) {
  return with_policy(config, [&](const auto& policy) -> std::unique_ptr<SetCache> {
    using Policy = std::remove_cvref_t<decltype(policy)>;
    static_assert(std::is_trivially_copyable_v<Policy>);
    return std::make_unique<PolicyCache<Policy>>(policy, config.num_lines, config.ways, scores,
                                                 keeps_positions(config));
  });
}

int64_t set_bytes_of(const PlannerConfig& config, bool on_gpu) {
  return with_policy(config, [&](const auto& policy) {
    using Policy = std::remove_cvref_t<decltype(policy)>;
    const auto ways = static_cast<int32_t>(config.ways);
    // On the host the planner keeps the start of each set's candidates.
    return set_bytes<Policy>(ways, !on_gpu && keeps_positions(config), !on_gpu) +
           (on_gpu ? 0 : int64_t{sizeof(uint32_t)});
  });
}

}  // namespace lsm::cache
