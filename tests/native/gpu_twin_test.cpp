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

/// That replays plans where they were made.
CheckedExecutor make_planning_executor(const GpuExecutorOptions& options, Storage& storage,
                                       const PlannerCase& planned) {
  CheckedExecutor made = make_executor(options, storage, planned);
  made.sets =
      cache::make_twin_set_cache(planned.config, planned.scores, cache::SetCachePlace::kTwin);
  return made;
}

TEST_CASE("GPU twins: rows of plans") {
  for (const int64_t row_bytes : {1, 20, 48, 4096}) check_rows_of_plans(row_bytes, make_executor);
  for (const int64_t row_bytes : {3, 48}) check_rows_of_plans(row_bytes, make_planning_executor);
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
