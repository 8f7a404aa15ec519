// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Simulates policies over whole traces.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cache/plan.h"
#include "cache/planner.h"

namespace lsm::cache {

using Batches = std::span<const std::span<const int64_t>>;

/// The counters of each iteration of `batches`, under the planner that `config` and `input`
/// describe. 'belady' takes `batches` as its trace.
std::vector<Counters> simulate(Batches batches, const PlannerConfig& config,
                               const PlannerInput& input, std::shared_ptr<ThreadPool> pool);

/// The most hits of any cache of `num_lines` rows that knows the trace: Belady's MIN with bypass,
/// fully associative. After each iteration it keeps, of all held and read rows, those with the
/// nearest next uses. The hits are those of a planner with one set and the policy 'belady', without
/// its scan of all ways. Rows of static and constant ids are no candidates. A row is dropped once
/// it has no next use: that counts as an eviction, or as a bypass if it was read at that iteration.
std::vector<Counters> simulate_optimal(Batches batches, int64_t num_lines, const IdMap& static_ids,
                                       const IdMap& constant_ids);

}  // namespace lsm::cache
