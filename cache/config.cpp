// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cache/metadata_word.h"
#include "cache/policies.h"
#include "kernels/core/check.h"

namespace lsm::cache {
namespace {

size_t find_name(const char* key, const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return found - names.begin();
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  throw ArgumentError(concat(key, ": expected one of ", list, "; got '", name, "'"));
}

PlannerConfig with_policy_named(const std::string& name) {
  PlannerConfig config;
  config.policy = name;
  return config;
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> kNames = {
      "round_robin", "random", "lru",     "clock",  "sieve",     "s3fifo", "lfu",
      "window",      "static", "dynamic", "hybrid", "lookahead", "belady"};
  return kNames;
}

PolicyKind policy_kind(const std::string& name) {
  return static_cast<PolicyKind>(find_name("cache.policy", policy_names(), name));
}

VictimMode victim_mode(const std::string& name) {
  return static_cast<VictimMode>(find_name("cache.victim.mode", {"none", "queues", "pool"}, name));
}

bool needs_window(const std::string& policy) {
  return policy_kind(policy) != PolicyKind::kBelady &&
         with_policy(with_policy_named(policy), [](const auto& of_name) {
           return std::decay_t<decltype(of_name)>::kNeedsWindow;
         });
}

bool needs_score(const std::string& policy) {
  return with_policy(with_policy_named(policy), [](const auto& of_name) {
    return std::decay_t<decltype(of_name)>::kNeedsScore;
  });
}

bool keeps_positions(const PlannerConfig& config) {
  return victim_mode(config.victim_mode) != VictimMode::kNone;
}

void check_config(const PlannerConfig& config) {
  policy_kind(config.policy);  // checks the name
  const VictimMode mode = victim_mode(config.victim_mode);
  constexpr int64_t kMaxLines = int64_t{1} << 40;
  check_argument(config.ways >= 1 && config.ways <= INT32_MAX, "cache.ways: expected 1 to ",
                 INT32_MAX, ", got ", config.ways);
  check_argument(config.num_lines > 0 && config.num_lines <= kMaxLines,
                 "cache.num_lines: expected at least 1, got ", config.num_lines,
                 "; for no cache at all set cache.policy=none");
  check_argument(config.num_lines % config.ways == 0,
                 "cache.num_lines: expected a multiple of cache.ways = ", config.ways, ", got ",
                 config.num_lines);
  check_argument(config.num_lines / config.ways < (int64_t{1} << 32),
                 "cache.num_lines: expected less than 2^32 sets; raise cache.ways");
  check_argument(config.window >= 0, "cache.window: expected at least 1 iteration, got ",
                 config.window);
  if (config.window == 0) {
    check_argument(!needs_window(config.policy), "cache.window: policy '", config.policy,
                   "' needs at least 1 iteration, got 0");
    check_argument(mode == VictimMode::kNone,
                   "cache.window: a victim buffer needs at least 1 iteration, got 0");
  }
  check_metadata_limits(config.window, 1, 0);
  check_argument(config.update_period >= 1,
                 "cache.update_period: expected at least 1 iteration, got ", config.update_period);
  check_argument(std::isfinite(config.near_fraction) && config.near_fraction >= 0,
                 "cache.near_fraction: expected a fraction of the window, 0 or more, got ",
                 config.near_fraction);
  check_argument(config.victim_rows >= 0 && config.victim_rows <= kMaxLines,
                 "cache.victim.rows: expected at least 1 row, got ", config.victim_rows);
  check_argument(mode != VictimMode::kPool || config.victim_rows <= UINT32_MAX,
                 "cache.victim.rows: expected fewer than 2^32 rows in a pool, got ",
                 config.victim_rows);
  check_argument(mode == VictimMode::kNone || config.victim_rows > 0, "cache.victim.rows: mode '",
                 config.victim_mode,
                 "' expects at least 1 row, got 0; or set cache.victim.mode=none");
}

}  // namespace lsm::cache
