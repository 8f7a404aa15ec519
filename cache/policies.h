// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Maps a policy's name to its type: the only list of policies.
#pragma once

#include <algorithm>
#include <type_traits>

#include "cache/config.h"
#include "cache/policy/belady.h"
#include "cache/policy/clock.h"
#include "cache/policy/dynamic.h"
#include "cache/policy/hybrid.h"
#include "cache/policy/lfu.h"
#include "cache/policy/lookahead.h"
#include "cache/policy/lru.h"
#include "cache/policy/random.h"
#include "cache/policy/round_robin.h"
#include "cache/policy/s3fifo.h"
#include "cache/policy/sieve.h"
#include "cache/policy/static_score.h"
#include "cache/policy/window.h"

namespace lsm::cache {
namespace policies_detail {

template <class Policy>
Policy with_seed(uint64_t seed) {
  Policy policy;
  policy.seed = seed;
  return policy;
}

inline Hybrid hybrid(const PlannerConfig& config) {
  Hybrid policy;
  const double distance = config.near_fraction * static_cast<double>(config.window);
  policy.near_distance = static_cast<uint32_t>(std::min(distance, double{kMaxIterations}));
  policy.has_victim_buffer = victim_mode(config.victim_mode) != VictimMode::kNone;
  return policy;
}

}  // namespace policies_detail

/// Returns use(policy) for the policy of `config`, which check_config() has checked.
template <class Use>
auto with_policy(const PlannerConfig& config, const Use& use) {
  using namespace policies_detail;
  switch (policy_kind(config.policy)) {
    case PolicyKind::kRoundRobin:
      return use(RoundRobin());
    case PolicyKind::kRandom:
      return use(with_seed<Random>(config.seed));
    case PolicyKind::kLru:
      return use(Lru());
    case PolicyKind::kClock:
      return use(Clock());
    case PolicyKind::kSieve:
      return use(Sieve());
    case PolicyKind::kS3Fifo:
      return use(S3Fifo());
    case PolicyKind::kLfu:
      return use(Lfu());
    case PolicyKind::kWindow:
      return use(with_seed<Window>(config.seed));
    case PolicyKind::kStatic:
      return use(StaticScore());
    case PolicyKind::kDynamic:
      return use(Dynamic());
    case PolicyKind::kHybrid:
      return use(hybrid(config));
    case PolicyKind::kLookahead:
      return use(Lookahead());
    case PolicyKind::kBelady:
      break;
  }
  return use(Belady());
}

}  // namespace lsm::cache
