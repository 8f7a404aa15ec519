// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GPU code with threads as items and lanes: every functor that a kernel runs. Plans and samples are
// the host's, rows are those of the files, and no functor races.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "cache/executor_on_backend.h"
#include "cache/gpu_set_cache.h"
#include "cache/set_cache_on_backend.h"
#include "kernels/sample/gpu_sampler.h"
#include "kernels/sample/sampler_on_backend.h"
#include "tests/native/gpu_checks.h"
#include "tests/native/thread_backend.h"
#include "tests/native/twin_checks.h"

namespace lsm::testing {
namespace {

std::unique_ptr<cache::GpuSetCache> make_sets(const cache::PlannerConfig& config,
                                              cache::Scores scores) {
  return cache::make_set_cache_on_backend(std::make_unique<ThreadBackend>(), config, scores);
}

/// Requests, sets and lanes at the same time.
TEST_CASE("GPU races: plans") {
  uint64_t seed = 500;
  for (const std::string& policy : cache::policy_names()) {
    ++seed;
    auto planned = PlannerCase::draw(seed, policy, seed % 2 == 0 ? "pool" : "none", kNumNodes);
    planned.batches.resize(std::min<size_t>(planned.batches.size(), 8));
    check_plans(planned, make_sets(planned.config, planned.scores));
  }
}

TEST_CASE("GPU races: next uses") {
  for (uint64_t seed = 730; seed < 736; ++seed) next_uses_of(ThreadBackend(), seed, 40);
}

CheckedExecutor make_executor(const GpuExecutorOptions& options, Storage& storage,
                              const PlannerCase& planned) {
  const auto backend = [] { return std::make_unique<ThreadBackend>(); };
  return {std::make_unique<ExecutorOnBackend<ThreadBackend>>(
              ExecutorBackends<ThreadBackend>{backend(), backend(), backend()}, options, storage,
              planned.static_ids, planned.constant_ids),
          nullptr};
}

TEST_CASE("GPU races: rows of plans") {
  check_executor(make_executor, make_sets);
}

TEST_CASE("GPU races: plans elsewhere are refused") {
  const auto planned = PlannerCase::draw(900, "lru", "none", kNumNodes);
  RowFiles files({kNumNodes, 8, 4096, 1});
  const auto storage = files.open("posix");
  const auto sets =
      cache::make_twin_set_cache(planned.config, planned.scores, cache::SetCachePlace::kTwin);
  sets->push({});
  cache::Decisions decisions;
  sets->decide(0, &decisions);
  cache::Plan plan;
  plan.on_gpu = decisions.moves;
  const CheckedExecutor checked =
      make_executor({planned.config.num_lines, 0, 0, 60}, *storage, planned);
  expect_throw<ArgumentError>("made where it is replayed",
                              [&] { checked.executor->replay(plan, {}, {}); });
}

TEST_CASE("GPU races: sums in order") {
  check_ordered_sums(ThreadBackend());
}

TEST_CASE("GPU races: samples") {
  check_samples([](const SampledTypes& types) {
    std::vector<std::unique_ptr<GpuSampler>> samplers;
    if (is_large(types)) return samplers;
    samplers.push_back(make_sampler_on_backend(std::make_unique<ThreadBackend>(), graph_of(types)));
    return samplers;
  });
}

}  // namespace

}  // namespace lsm::testing
