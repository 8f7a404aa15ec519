// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Random caches and traces, and a model of what a plan says, in maps and whole ids.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cache/planner.h"
#include "tests/native/testing.h"

namespace lsm::testing {

/// One planner's input.
struct PlannerCase {
  cache::PlannerConfig config;
  std::vector<std::vector<int64_t>> batches;
  std::vector<std::vector<int64_t>> rank_starts;  // of each batch; may be empty
  std::vector<float> scores;
  std::vector<int64_t> static_ids, constant_ids;

  /// Any that `seed` and the policy and mode lead to; ids are below `num_nodes`.
  static PlannerCase draw(uint64_t seed, const std::string& policy, const std::string& mode,
                          int64_t num_nodes);

  std::unique_ptr<cache::Planner> make_planner(int num_threads) const;

  int64_t num_batches() const { return static_cast<int64_t>(batches.size()); }
  int64_t victim_slots() const;
  /// Pushes the batches that are known when iteration `t` is planned.
  void push_until(cache::Planner& planner, int64_t t) const;
  std::string name() const;
};

/// The contents of the tiers after each plan, by id. check() tells if a plan follows from it.
class TierModel {
 public:
  explicit TierModel(const PlannerCase& planned) : planned_(planned) {}

  /// Throws Failure unless every request is served by a tier that holds its row, no place is
  /// written twice, words say where rows will be asked for, and the counters add up.
  void check(const cache::Plan& plan);

 private:
  void check_requests(const cache::Plan& plan);
  void enter_victims(const cache::Plan& plan, const std::vector<int64_t>& slots,
                     const std::vector<int64_t>& words, const std::vector<int64_t>& ids);
  /// The word of row `id` tells its next use rightly.
  void check_word(const cache::Plan& plan, int64_t id, uint64_t word) const;

  const PlannerCase& planned_;
  std::map<int64_t, int64_t> lines_, victims_;  // the id in each
};

}  // namespace lsm::testing
