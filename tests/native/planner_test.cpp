// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The planner on random configurations and traces: its plans can be carried out, and are the same
// with any number of threads.
#include <doctest/doctest.h>

#include "cache/occurrence_table.h"
#include "cache/simulate.h"
#include "tests/native/planner_cases.h"

namespace lsm::testing {
namespace {

constexpr int64_t kNumNodes = 400;

bool equal(const cache::Plan& a, const cache::Plan& b) {
  return a.iteration == b.iteration && a.ids == b.ids && a.source == b.source && a.slot == b.slot &&
         a.evict_line == b.evict_line && a.evict_slot == b.evict_slot &&
         a.evict_word == b.evict_word && a.insert_position == b.insert_position &&
         a.insert_line == b.insert_line && a.spill_position == b.spill_position &&
         a.spill_slot == b.spill_slot && a.spill_word == b.spill_word &&
         a.counters.spilled == b.counters.spilled &&
         a.counters.victim_overflow == b.counters.victim_overflow;
}

void plan_case(const PlannerCase& planned) {
  const auto one = planned.make_planner(1), many = planned.make_planner(4);
  TierModel model(planned);
  cache::Plan plan, other;
  for (int64_t t = 0; t < planned.num_batches(); ++t) {
    planned.push_until(*one, t);
    planned.push_until(*many, t);
    one->plan(&plan);
    many->plan(&other);
    LSM_EXPECT(equal(plan, other), planned.name(), ", iteration ", t);
    model.check(plan);
  }
}

/// Two buckets of 12 slots. First one of bucket 0 overflows into bucket 1, then one of bucket 1
/// into bucket 0, so both count entries in a later bucket.
TEST_CASE("planner: a search in buckets that overflowed into one another ends") {
  constexpr uint64_t kSecond = uint64_t{1} << 63;  // the home of these hashes is bucket 1
  cache::OccurrenceTable table;
  table.reserve(19, [](uint32_t) -> uint64_t { return 0; });
  const auto place_of = [&](uint64_t hash, uint32_t index) {
    return table.find(hash, [index](uint32_t other) { return other == index; });
  };
  for (uint32_t i = 0; i < 13; ++i) table.insert(7, i);
  for (uint32_t i = 0; i < 6; ++i) table.erase(7, place_of(7, i));
  for (uint32_t i = 20; i < 32; ++i) table.insert(kSecond | 7, i);
  LSM_EXPECT(table.size() == 19, table.size());
  LSM_EXPECT(place_of(7, 99).slot < 0 && place_of(kSecond | 7, 99).slot < 0, "found");
  LSM_EXPECT(place_of(7, 12).bucket == 1 && place_of(kSecond | 7, 31).bucket == 0, "lost");
}

TEST_CASE("planner: random traces") {
  uint64_t seed = 0;
  for (const std::string& policy : cache::policy_names()) {
    for (const char* mode : {"none", "queues", "pool"}) {
      for (int round = 0; round < 6; ++round) {
        plan_case(PlannerCase::draw(++seed, policy, mode, kNumNodes));
      }
    }
  }
}

/// Lists longer than what one task looks up, and so many sets that tasks share them.
TEST_CASE("planner: large lists") {
  for (const char* policy : {"lookahead", "hybrid", "s3fifo"}) {
    PlannerCase planned = PlannerCase::draw(7, policy, "pool", 50'000);
    planned.config.ways = 16;
    planned.config.num_lines = 16 * 300;
    planned.config.victim_rows = 2000;
    Random random(1);
    for (size_t b = 0; b < std::min<size_t>(6, planned.batches.size()); ++b) {
      planned.batches[b] = skewed_ids(random, 50'000, 12'000);
      planned.rank_starts[b].clear();
    }
    plan_case(planned);
  }
}

/// Batches that are refused leave no trace, wherever in the batch the mistake is.
TEST_CASE("planner: rejected batches leave no trace") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const PlannerCase planned = PlannerCase::draw(seed, "lookahead", "pool", kNumNodes);
    const auto planner = planned.make_planner(1), other = planned.make_planner(1);
    cache::Plan plan, expected;
    Random random(seed);
    for (int64_t t = 0; t < planned.num_batches(); ++t) {
      auto bad = planned.batches[static_cast<size_t>(t)];
      const bool is_full = planner->num_pushed() - t == planned.config.window;
      if (!bad.empty() && !is_full) {
        bad.push_back(random.chance(50) ? random.pick(bad) : kNumNodes);
        expect_throw<ArgumentError>("expected", [&] { planner->push(bad); });
      }
      planned.push_until(*planner, t);
      planned.push_until(*other, t);
      planner->plan(&plan);
      other->plan(&expected);
      LSM_EXPECT(equal(plan, expected), planned.name(), ", iteration ", t);
    }
  }
}

TEST_CASE("planner: simulations") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    PlannerCase planned = PlannerCase::draw(seed, "belady", "none", kNumNodes);
    planned.config.ways = planned.config.num_lines;
    const std::vector<std::span<const int64_t>> batches(planned.batches.begin(),
                                                        planned.batches.end());
    const cache::PlannerInput input{planned.scores, planned.static_ids, planned.constant_ids, {}};
    const auto bound =
        cache::simulate(batches, planned.config, input, std::make_shared<ThreadPool>(1));
    const auto optimal = cache::simulate_optimal(
        batches, planned.config.num_lines, cache::index_ids("static_ids", planned.static_ids),
        cache::index_ids("constant_ids", planned.constant_ids));
    const auto planner = planned.make_planner(4);
    int64_t most_hits = 0, hits = 0;
    cache::Plan plan;
    for (int64_t t = 0; t < planned.num_batches(); ++t) {
      planned.push_until(*planner, t);
      planner->plan(&plan);
      LSM_EXPECT(plan.counters.hits == bound[static_cast<size_t>(t)].hits, planned.name(), " ", t);
      hits += plan.counters.hits;
      most_hits += optimal[static_cast<size_t>(t)].hits;
    }
    LSM_EXPECT(hits == most_hits, planned.name(), ": ", hits, " of ", most_hits);
  }
}

}  // namespace

}  // namespace lsm::testing
