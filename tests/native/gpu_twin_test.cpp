// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The twins of GPU code: every functor that a kernel runs, item by item and lane by lane, forwards
// and backwards. Plans and samples are the host's, rows are those of the files, and no functor
// leaves its memory.
#include <doctest/doctest.h>

#include <memory>

#include "cache/gpu_executor.h"
#include "cache/gpu_set_cache.h"
#include "kernels/core/host_backend.h"
#include "kernels/sample/gpu_sampler.h"
#include "tests/native/gpu_checks.h"
#include "tests/native/twin_checks.h"

namespace lsm::testing {
namespace {

TEST_CASE("GPU twins: plans") {
  uint64_t seed = 100;
  for (const std::string& policy : cache::policy_names()) {
    for (const char* mode : {"none", "queues", "pool"}) {
      for (const auto place : {cache::SetCachePlace::kTwin, cache::SetCachePlace::kTwinBackwards}) {
        const auto planned = PlannerCase::draw(++seed, policy, mode, kNumNodes);
        check_plans(planned, cache::make_twin_set_cache(planned.config, planned.scores, place));
      }
    }
  }
}

TEST_CASE("GPU twins: next uses") {
  for (uint64_t seed = 700; seed < 730; ++seed) {
    next_uses_of(HostBackend(seed % 2 == 0), seed, 80);
  }
}

CheckedExecutor make_executor(const GpuExecutorOptions& options, Storage& storage,
                              const PlannerCase& planned) {
  return {make_twin_executor(options, storage, planned.static_ids, planned.constant_ids), nullptr};
}

TEST_CASE("GPU twins: rows of plans") {
  check_executor(make_executor, [](const cache::PlannerConfig& config, cache::Scores scores) {
    return cache::make_twin_set_cache(config, scores, cache::SetCachePlace::kTwin);
  });
}

TEST_CASE("GPU twins: sums in order") {
  check_ordered_sums(HostBackend());
  check_ordered_sums(HostBackend(true));
}

TEST_CASE("GPU twins: samples") {
  check_samples([](const SampledTypes& types) {
    std::vector<std::unique_ptr<GpuSampler>> samplers;
    for (const bool backwards : {false, true}) {
      samplers.push_back(make_twin_sampler(graph_of(types), backwards));
    }
    return samplers;
  });
}

}  // namespace

}  // namespace lsm::testing
