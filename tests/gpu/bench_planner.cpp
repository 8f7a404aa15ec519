// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "cache/planner.h"
#include "tests/emulated/tests.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/figures.h"

namespace lsm::testing {
namespace {

constexpr int64_t kWindow = 16;

/// Lists of distinct ids, low ones far more often than high ones.
std::vector<std::vector<int64_t>> draw_lists(const BenchSizes& sizes, size_t count) {
  Random random(41);
  std::vector<std::vector<int64_t>> lists(count);
  std::vector<uint32_t> taken_by(static_cast<size_t>(sizes.nodes));
  for (uint32_t number = 1; number <= count; ++number) {
    auto& list = lists[number - 1];
    while (std::ssize(list) < sizes.ids) {
      const double drawn = static_cast<double>(random.next() >> 11) * 0x1p-53;
      const auto id =
          static_cast<int64_t>(static_cast<double>(sizes.nodes) * drawn * drawn * drawn);
      if (taken_by[static_cast<size_t>(id)] == number) continue;
      taken_by[static_cast<size_t>(id)] = number;
      list.push_back(id);
    }
  }
  return lists;
}

struct Planned {
  double ids_per_s = 0;
  std::vector<cache::Counters> counters;
};

Planned run(const BenchSizes& sizes, const std::vector<std::vector<int64_t>>& lists,
            const cache::PlannerConfig& config, bool on_gpu, double on_host) {
  const auto pool = std::make_shared<ThreadPool>(sizes.threads);
  const auto planner = on_gpu
                           ? std::make_unique<cache::Planner>(
                                 config, cache::PlannerInput{}, pool,
                                 cache::make_gpu_set_cache(config, {}, kDevice, kTimeoutSecs))
                           : std::make_unique<cache::Planner>(config, cache::PlannerInput{}, pool);
  Planned made;
  cache::Plan plan;
  const auto plan_next = [&](int) {
    while (planner->num_pushed() < planner->num_planned() + kWindow) {
      planner->push(lists[static_cast<size_t>(planner->num_pushed())]);
    }
    planner->plan(&plan);
    made.counters.push_back(plan.counters);
  };
  seconds_on_host(sizes.repeats - 1, plan_next);  // fills the cache
  const auto seconds = seconds_on_host(sizes.repeats, plan_next);
  made.ids_per_s =
      print({.name = "planner",
             .sizes = {{"ids", sizes.ids}, {"lines", config.num_lines}},
             .variant = std::string(on_gpu ? "GPU" : "host") + ", victims " + config.victim_mode,
             .unit = "ids/s",
             .values = rates(static_cast<double>(sizes.ids), seconds),
             .beside = on_host,
             .beside_what = "the planner of the host"});
  return made;
}

bool are_same(const cache::Counters& a, const cache::Counters& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

}  // namespace

void bench_planner(const BenchSizes& sizes) {
  const auto lists = draw_lists(sizes, static_cast<size_t>(2 * sizes.repeats + kWindow + 2));
  for (const char* victims : {"none", "pool"}) {
    cache::PlannerConfig config;
    config.num_lines = sizes.lines;
    config.window = kWindow;
    config.victim_mode = victims;
    config.victim_rows = config.victim_mode == "none" ? 0 : sizes.lines / 8;
    const Planned host = run(sizes, lists, config, false, 0);
    const Planned gpu = run(sizes, lists, config, true, host.ids_per_s);
    for (size_t t = 0; t < host.counters.size(); ++t) {
      LSM_EXPECT(are_same(host.counters[t], gpu.counters.at(t)), "plan ", t, " differs");
    }
  }
}

}  // namespace lsm::testing
