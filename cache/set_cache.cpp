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

}  // namespace lsm::cache
