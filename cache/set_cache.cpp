// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/set_cache.h"

#include <type_traits>

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
#include "cache/policy_cache.h"

namespace lsm::cache {
namespace {

template <class Policy>
std::unique_ptr<SetCache> make(const PlannerConfig& config, Scores scores,
                               const Policy& policy = {}) {
  static_assert(std::is_trivially_copyable_v<Policy>);
  const bool keeps_positions = victim_mode(config.victim_mode) != VictimMode::kNone;
  return std::make_unique<PolicyCache<Policy>>(policy, config.num_lines, config.ways, scores,
                                               keeps_positions);
}

template <class Policy>
Policy with_seed(uint64_t seed) {
  Policy policy;
  policy.seed = seed;
  return policy;
}

Hybrid hybrid(const PlannerConfig& config) {
  Hybrid policy;
  const double distance = config.near_fraction * static_cast<double>(config.window);
  policy.near_distance = static_cast<uint32_t>(std::min(distance, double{kMaxIterations}));
  policy.has_victim_buffer = victim_mode(config.victim_mode) != VictimMode::kNone;
  return policy;
}

}  // namespace

std::unique_ptr<SetCache> make_set_cache(const PlannerConfig& config, Scores scores) {
  switch (policy_kind(config.policy)) {
    case PolicyKind::kRoundRobin:
      return make<RoundRobin>(config, scores);
    case PolicyKind::kRandom:
      return make(config, scores, with_seed<Random>(config.seed));
    case PolicyKind::kLru:
      return make<Lru>(config, scores);
    case PolicyKind::kClock:
      return make<Clock>(config, scores);
    case PolicyKind::kSieve:
      return make<Sieve>(config, scores);
    case PolicyKind::kS3Fifo:
      return make<S3Fifo>(config, scores);
    case PolicyKind::kLfu:
      return make<Lfu>(config, scores);
    case PolicyKind::kWindow:
      return make(config, scores, with_seed<Window>(config.seed));
    case PolicyKind::kStatic:
      return make<StaticScore>(config, scores);
    case PolicyKind::kDynamic:
      return make<Dynamic>(config, scores);
    case PolicyKind::kHybrid:
      return make(config, scores, hybrid(config));
    case PolicyKind::kLookahead:
      return make<Lookahead>(config, scores);
    case PolicyKind::kBelady:
      return make<Belady>(config, scores);
  }
  return nullptr;
}

}  // namespace lsm::cache
