// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The configuration of a planner, and its checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lsm::cache {

/// Policies, published and ours. cache/policy/ has a header for each.
enum class PolicyKind : uint8_t {
  kRoundRobin,
  kRandom,
  kLru,
  kClock,
  kSieve,
  kS3Fifo,
  kLfu,
  kWindow,
  kStatic,
  kDynamic,
  kHybrid,
  kLookahead,
  kBelady,
};

enum class VictimMode : uint8_t { kNone, kQueues, kPool };

struct PlannerConfig {
  int64_t num_lines = 0;  // a multiple of ways
  int64_t ways = 32;
  std::string policy = "lookahead";
  int64_t window = 256;
  int64_t update_period = 4;
  double near_fraction = 0.125;
  std::string victim_mode = "none";
  int64_t victim_rows = 0;  // per queue, or of the pool
  uint64_t seed = 0;
  int64_t num_nodes = -1;  // ids are below it; -1: not checked
};

/// Names in the order of PolicyKind.
const std::vector<std::string>& policy_names();

/// True if eviction depends on next uses, so that the policy needs a window: all that do but
/// belady, which knows the whole trace.
bool needs_window(const std::string& policy);
/// True if eviction depends on the scores of nodes.
bool needs_score(const std::string& policy);

/// These throw ArgumentError, which lists the valid names.
PolicyKind policy_kind(const std::string& name);
VictimMode victim_mode(const std::string& name);

/// True if lines keep their position in the batch of their next use, for the victim buffer.
bool keeps_positions(const PlannerConfig& config);

/// Throws ArgumentError, which names the key, if no planner supports `config`.
void check_config(const PlannerConfig& config);

}  // namespace lsm::cache
