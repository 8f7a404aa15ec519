// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The twins of GPU code: every functor that a kernel runs, item by item and lane by lane, forwards
// and backwards. Plans and samples are the host's, rows are those of the files, and no functor
// leaves its memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cache/gpu_executor.h"
#include "cache/gpu_set_cache.h"
#include "cache/next_use_chain_on_backend.h"
#include "kernels/core/host_backend.h"
#include "kernels/core/ordered_sum.h"
#include "kernels/sample/gpu_graph.h"
#include "kernels/sample/gpu_sampler.h"
#include "tests/native/gpu_checks.h"

namespace lsm::testing {
namespace {

/// The message of the error that call() throws, or nothing.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return {};
}

/// Every occurrence in the window, as both chains have it.
void expect_same_links(const cache::NextUseChain& host,
                       const cache::NextUseChainOnBackend<HostBackend>& chain) {
  LSM_EXPECT(host.num_entries() == chain.num_entries(), chain.num_entries());
  LSM_EXPECT(host.end_batch() == chain.end_batch(), chain.end_batch());
  const cache::ChainRef ref = chain.ref();
  uint32_t number = ref.first;
  for (int64_t b = host.first_batch(); b < host.end_batch(); ++b) {
    std::vector<cache::Access> expected(host.batch(b).size());
    host.read(b, 0, expected.size(), expected.data());
    for (size_t i = 0; i < expected.size(); ++i) {
      const cache::Access& got = ref.at(number++);
      LSM_EXPECT(got.id == expected[i].id && got.next_use == expected[i].next_use &&
                     got.next_position == expected[i].next_position,
                 "batch ", b, ", position ", i);
    }
  }
}

/// Batches come, some of them with an id twice, and go, so that the ring and the table grow and the
/// table is made anew.
void next_uses_of(HostBackend backend, uint64_t seed, int num_batches) {
  Random random(seed);
  cache::NextUseChain host;
  cache::NextUseChainOnBackend<HostBackend> chain(backend);
  const int64_t num_nodes = random.between(1, kNumNodes), window = random.between(1, 12);
  for (int b = 0; b < num_batches; ++b) {
    std::vector<int64_t> ids = skewed_ids(random, num_nodes, random.between(0, num_nodes));
    if (random.chance(15) && !ids.empty()) {
      std::vector<int64_t> repeated = ids;
      for (int i = 0; i < 3; ++i) {
        repeated.insert(repeated.begin() + random.between(0, static_cast<int64_t>(ids.size())),
                        random.pick(ids));
      }
      const std::string expected = error_of([&] { host.push(repeated); });
      const std::string message = error_of([&] { chain.push(repeated, num_nodes); });
      LSM_EXPECT(!expected.empty() && message == expected, message, ", not ", expected);
      expect_same_links(host, chain);
    }
    std::vector<uint32_t> unlinked;
    const cache::EnteringRef entering = chain.push(ids, num_nodes);
    for (uint32_t i = 0; i < entering.count; ++i) {
      if (entering.previous[i] == cache::ChainRef::kEmpty) unlinked.push_back(i);
    }
    LSM_EXPECT(std::ranges::equal(host.push(ids), unlinked), "batch ", b);
    expect_same_links(host, chain);
    while (host.end_batch() - host.first_batch() >= window || random.chance(20)) {
      if (host.end_batch() == host.first_batch()) break;
      host.retire();
      chain.retire();
    }
    expect_same_links(host, chain);
  }
}

/// Items of an OrderedSum: squares of what the values were.
struct SquaredItems {
  static constexpr int kTile = 64;

  const int64_t* values;
  const int64_t* num_values;
  int64_t* sums;
  int64_t* total;

  int64_t count() const { return *num_values; }
  int64_t value(int64_t i) const { return values[i] * values[i]; }
  void place(int64_t i, int64_t value, int64_t before) const { sums[i] = value + before; }
  void end(int64_t sum) const { *total += sum; }
};

/// The items may be fewer than those that there are warps for.
void check_ordered_sums(HostBackend backend) {
  Random random(17);
  for (const int64_t count : {0, 1, 31, 64, 65, 128, 3000}) {
    std::vector<int64_t> values(static_cast<size_t>(count));
    for (int64_t& value : values) value = random.between(0, 1'000'000);
    std::vector<int64_t> expected(values.size()), sums(values.size());
    std::transform_inclusive_scan(values.begin(), values.end(), expected.begin(), std::plus<>(),
                                  [](int64_t value) { return value * value; });
    for (const int64_t most : {count, count + 1, 2 * count + 700}) {
      using Sum = OrderedSum<SquaredItems>;
      std::vector<uint64_t> state(static_cast<size_t>(Sum::state_words(most)));
      int64_t total = 0;
      backend.for_each_warp(Sum::num_tiles(most),
                            Sum{{values.data(), &count, sums.data(), &total}, state.data()});
      LSM_EXPECT(sums == expected, count, " of ", most);
      LSM_EXPECT(total == (count > 0 ? expected.back() : 0), count, " of ", most);
    }
  }
}

/// The arrays that a twin reads. Precondition: `types` outlives it.
GpuGraph graph_of(const SampledTypes& types) {
  const std::vector<TypedEdges> edges = edges_of(types);
  const TypedOptions options = options_of(types);
  return make_gpu_graph(types.num_nodes, edges, types.sampling, options,
                        {edges, options.node_times});
}

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
