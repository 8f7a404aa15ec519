// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The twins of GPU code: every functor that a kernel runs, item by item and lane by lane, forwards
// and backwards, and with threads as items and lanes. Plans and samples are the host's, rows are
// those of the files, and no functor leaves its memory or races.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>

#include "cache/backend_chain.h"
#include "cache/backend_executor.h"
#include "cache/backend_sets.h"
#include "cache/batch_sets.h"
#include "kernels/sample/backend_sampler.h"
#include "kernels/sample/device_sampler.h"
#include "kernels/sample/sampler.h"
#include "tests/native/planner_cases.h"
#include "tests/native/thread_backend.h"

namespace lsm::testing {
namespace {

constexpr int64_t kNumNodes = 300;

/// A planner of `planned` with the sets of a twin.
std::unique_ptr<cache::Planner> make_twin(const PlannerCase& planned,
                                          std::unique_ptr<cache::BatchSets> sets) {
  const std::vector<std::span<const int64_t>> trace(planned.batches.begin(), planned.batches.end());
  cache::PlannerInput input{planned.scores, planned.static_ids, planned.constant_ids, {}};
  if (planned.config.policy == "belady") input.trace = trace;
  return std::make_unique<cache::Planner>(planned.config, input, std::make_shared<ThreadPool>(1),
                                          std::move(sets));
}

void plan_case(const PlannerCase& planned, std::unique_ptr<cache::BatchSets> sets) {
  const auto host = planned.make_planner(1), twin = make_twin(planned, std::move(sets));
  TierModel model(planned);
  cache::Plan plan, other;
  for (int64_t t = 0; t < planned.num_batches(); ++t) {
    planned.push_until(*host, t);
    planned.push_until(*twin, t);
    host->plan(&plan);
    twin->plan(&other);
    LSM_EXPECT(plan.source == other.source && plan.slot == other.slot, planned.name(), ", ", t);
    LSM_EXPECT(plan.insert_line == other.insert_line && plan.evict_slot == other.evict_slot &&
                   plan.evict_word == other.evict_word && plan.spill_word == other.spill_word,
               planned.name(), ", iteration ", t);
    model.check(other);
  }
}

void plans() {
  uint64_t seed = 100;
  for (const std::string& policy : cache::policy_names()) {
    for (const char* mode : {"none", "queues", "pool"}) {
      for (const auto place : {cache::SetsPlace::kTwin, cache::SetsPlace::kTwinBackwards}) {
        const auto planned = PlannerCase::draw(++seed, policy, mode, kNumNodes);
        plan_case(planned, cache::make_twin_sets(planned.config, planned.scores, place));
      }
    }
  }
}

/// Requests, sets and lanes at the same time.
void plans_of_threads() {
  uint64_t seed = 500;
  for (const std::string& policy : cache::policy_names()) {
    ++seed;
    auto planned = PlannerCase::draw(seed, policy, seed % 2 == 0 ? "pool" : "none", kNumNodes);
    planned.batches.resize(std::min<size_t>(planned.batches.size(), 8));
    plan_case(planned, cache::make_backend_sets(std::make_unique<ThreadBackend>(), planned.config,
                                                planned.scores));
  }
}

/// The message of the error that call() throws, or nothing.
template <class Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return {};
}

/// Every occurrence in the window, as both chains have it.
template <class Backend>
void expect_same_links(const cache::NextUseChain& host, const cache::BackendChain<Backend>& chain) {
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
template <class Backend>
void next_uses_of(Backend backend, uint64_t seed, int num_batches) {
  Random random(seed);
  cache::NextUseChain host;
  cache::BackendChain<Backend> chain(backend);
  const int64_t num_nodes = random.between(1, kNumNodes), window = random.between(1, 12);
  for (int b = 0; b < num_batches; ++b) {
    std::vector<int64_t> ids = skewed_ids(random, num_nodes, random.between(0, num_nodes));
    if (random.chance(15) && !ids.empty()) {
      std::vector<int64_t> repeated = ids;
      for (int i = 0; i < 3; ++i) {
        repeated.insert(repeated.begin() + random.between(0, static_cast<int64_t>(ids.size())),
                        random.pick(ids));
      }
      const std::string expected = message_of([&] { host.push(repeated); });
      const std::string message = message_of([&] { chain.push(repeated); });
      LSM_EXPECT(!expected.empty() && message == expected, message, ", not ", expected);
      expect_same_links(host, chain);
    }
    std::vector<uint32_t> unlinked;
    const cache::EnteringRef entering = chain.push(ids);
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

void next_uses() {
  for (uint64_t seed = 700; seed < 730; ++seed) {
    next_uses_of(HostBackend(seed % 2 == 0), seed, 80);
  }
  for (uint64_t seed = 730; seed < 736; ++seed) next_uses_of(ThreadBackend(), seed, 40);
}

std::unique_ptr<DeviceExecutor> make_executor(const DeviceExecutorOptions& options,
                                              Storage& storage, const PlannerCase& planned) {
  return std::make_unique<BackendExecutor<ThreadBackend>>(
      std::make_unique<ThreadBackend>(), std::make_unique<ThreadBackend>(), options, storage,
      planned.static_ids, planned.constant_ids);
}

/// Expects the rows of a plan in `rows`, from the last to the first if `backwards`.
void expect_rows(const cache::Plan& plan, std::span<const std::byte> rows, int64_t row_bytes,
                 bool backwards = false) {
  const size_t count = plan.ids.size();
  for (size_t i = 0; i < count; ++i) {
    const auto row = rows.subspan(i * static_cast<size_t>(row_bytes), row_bytes);
    LSM_EXPECT(is_row(row, plan.ids[backwards ? count - 1 - i : i]), "iteration ", plan.iteration,
               ", position ", i);
  }
}

/// For three ranks: one wants all rows in order, one all of them backwards, one none.
void replay_to(DeviceExecutor& executor, const PlanMoves& moves, const cache::Plan& plan,
               std::span<const std::byte> staged, int64_t row_bytes) {
  const auto count = static_cast<int64_t>(plan.ids.size());
  std::vector<int32_t> in_order(plan.ids.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  const std::vector<int32_t> backwards(in_order.rbegin(), in_order.rend());
  std::vector<std::byte> first(staged.size()), second(staged.size());
  executor.replay_to(moves, staged,
                     std::array<RowTargets, 3>{{{in_order, first.data(), count, {}},
                                                {{}, nullptr, 0, {}},
                                                {in_order, second.data(), count, backwards}}});
  executor.wait_delivered();
  expect_rows(plan, first, row_bytes);
  expect_rows(plan, second, row_bytes, true);
}

/// One batch of `planned` through the executor, its rows from storage as the files have them.
void replay(DeviceExecutor& executor, const cache::Plan& plan, int64_t row_bytes) {
  const auto* source = reinterpret_cast<const uint8_t*>(plan.source.data());
  const PlanMoves moves{plan.iteration,
                        {source, plan.source.size()},
                        plan.slot,
                        plan.evict_line,
                        plan.evict_slot,
                        plan.evict_word,
                        plan.insert_position,
                        plan.insert_line,
                        plan.spill_position,
                        plan.spill_slot,
                        plan.spill_word};
  std::vector<std::byte> staged(plan.ids.size() * static_cast<size_t>(row_bytes));
  for (size_t i = 0; i < plan.ids.size(); ++i) {
    if (plan.source[i] != cache::Source::kStorage) continue;
    for (int64_t b = 0; b < row_bytes; ++b) {
      staged[i * static_cast<size_t>(row_bytes) + static_cast<size_t>(b)] = byte_of(plan.ids[i], b);
    }
  }
  if (plan.iteration % 3 > 0) return replay_to(executor, moves, plan, staged, row_bytes);
  std::vector<std::byte> out(staged.size());
  executor.replay(moves, staged, out);
  executor.synchronize();
  expect_rows(plan, out, row_bytes);
}

void rows_of_plans() {
  uint64_t seed = 300;
  for (const int64_t row_bytes : {1, 20, 48, 4096}) {
    RowFiles files({kNumNodes, row_bytes, 4096, 1});
    for (const char* policy : {"lookahead", "hybrid", "lru"}) {
      const auto planned = PlannerCase::draw(++seed, policy, "pool", kNumNodes);
      const auto planner = planned.make_planner(1);
      const auto storage = files.open("posix");
      const DeviceExecutorOptions options{planned.config.num_lines, planned.victim_slots(),
                                          static_cast<int64_t>(seed % 3) * 4, 60};
      const auto executor = make_executor(options, *storage, planned);
      std::vector<cache::Plan> made(static_cast<size_t>(planned.num_batches()));
      for (int64_t t = 0; t < planned.num_batches(); ++t) {
        planned.push_until(*planner, t);
        planner->plan(&made[static_cast<size_t>(t)]);
      }
      for (size_t t = 0; t < made.size(); ++t) {
        executor->set_staging(t % 2 == 0 ? Staging::kCopy : Staging::kGather);
        replay(*executor, made[t], row_bytes);
        if (t + 1 == made.size()) break;
        std::vector<int64_t> victims;
        for (size_t i = 0; i < made[t + 1].slot.size(); ++i) {
          if (made[t + 1].source[i] != cache::Source::kVictim) continue;
          victims.push_back(made[t + 1].slot[i]);
        }
        executor->prefetch(victims);
      }
    }
  }
}

/// Runs cover the rows of storage, in order and where they lie, and no gap is wider than it may be.
void staged_runs() {
  constexpr auto kStorage = static_cast<uint8_t>(RowSource::kStorage);
  Random random(9);
  for (int round = 0; round < 300; ++round) {
    const int64_t row_bytes = random.pick<int64_t>({100, 20'000, 70'000});
    std::vector<uint8_t> source(static_cast<size_t>(random.between(0, 40)));
    std::vector<int64_t> slot(source.size());
    int64_t dropped = 0;  // rows of staging that are not in the batch
    for (size_t i = 0; i < source.size(); ++i) {
      source[i] = random.chance(60) ? kStorage : 1;
      dropped += random.chance(10) ? 1 : 0;
      slot[i] = static_cast<int64_t>(i) + dropped;
    }
    int64_t end = 0;
    std::vector<bool> is_covered(source.size());
    for_each_staged_run(source, slot, row_bytes, [&](int64_t first, int64_t from, int64_t count) {
      LSM_EXPECT(count > 0 && first >= end, "run at ", first);
      const bool goes_on = end > 0 && slot[end - 1] - (end - 1) == from - first;
      LSM_EXPECT(!goes_on || (first - end) * row_bytes > 64 << 10, "one run would do at ", first);
      end = first + count;
      LSM_EXPECT(source[first] == kStorage && source[end - 1] == kStorage, "ends of ", first);
      int64_t gap = 0;
      for (int64_t i = first; i < end; ++i) {
        gap = source[i] == kStorage ? 0 : gap + row_bytes;
        LSM_EXPECT(source[i] != kStorage || slot[i] == from + i - first, "position ", i);
        LSM_EXPECT(gap <= 64 << 10, "gap at ", i);
        is_covered[i] = true;
      }
    });
    for (size_t i = 0; i < source.size(); ++i) {
      LSM_EXPECT(source[i] != kStorage || is_covered[i], "position ", i);
    }
  }
}

void samples() {
  Random random(5);
  for (const int64_t num_nodes : {1, 40, 3000}) {
    std::vector<int64_t> indptr = {0};
    std::vector<int32_t> indices;
    for (int64_t node = 0; node < num_nodes; ++node) {
      const int64_t degree = random.chance(5) ? random.between(100, 300) : random.between(0, 12);
      for (int64_t i = 0; i < degree; ++i) {
        indices.push_back(static_cast<int32_t>(random.between(0, num_nodes - 1)));
      }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
    const auto view = [](auto& values) {
      TensorView seen;
      seen.data = values.data();
      seen.dtype = dtype_of<std::remove_reference_t<decltype(values[0])>>();
      seen.num_dims = 1;
      seen.shape[0] = static_cast<int64_t>(values.size());
      seen.strides[0] = 1;
      return seen;
    };
    for (const auto& fanouts : {std::vector<int64_t>{5, -1}, {80, 3, 0, 2}}) {
      const auto host = make_neighbor_sampler(view(indptr), view(indices), fanouts, 1);
      const DeviceGraph graph{indptr.data(), indices.data(), false, num_nodes};
      for (const int kind : {0, 1, 2}) {
        const auto twin =
            kind == 2 ? make_backend_sampler(std::make_unique<ThreadBackend>(), graph, fanouts)
                      : make_twin_sampler(graph, fanouts, kind == 1);
        for (uint64_t iteration = 0; iteration < 3; ++iteration) {
          const auto seeds = skewed_ids(random, num_nodes, 60);
          const BatchName name{1, 2, iteration, 3};
          const SampledSubgraph expected = host->sample(seeds, name);
          const SampleSizes sizes = twin->sample(seeds, name);
          LSM_EXPECT(sizes.num_nodes == expected.num_nodes, sizes.num_nodes);
          LSM_EXPECT(sizes.num_sampled_edges == expected.num_sampled_edges, "edges");
          std::vector<int64_t> nodes(sizes.num_nodes), edges(2 * sizes.num_edges),
              starts(sizes.num_expanded + 1);
          twin->copy_to({nodes.data(), edges.data(), starts.data()});
          const auto same = [](const std::vector<int64_t>& got, const Buffer& buffer) {
            return got.empty() ||
                   std::memcmp(got.data(), buffer.data(), got.size() * sizeof(int64_t)) == 0;
          };
          LSM_EXPECT(same(nodes, *expected.n_id) && same(edges, *expected.edges) &&
                         same(starts, *expected.indptr),
                     "iteration ", iteration);
        }
      }
    }
  }
}

}  // namespace

std::vector<Test> device_tests() {
  return {{"device twins: plans", plans},
          {"device twins: plans, at the same time", plans_of_threads},
          {"device twins: next uses", next_uses},
          {"device twins: rows of plans", rows_of_plans},
          {"device twins: runs of staged rows", staged_runs},
          {"device twins: samples", samples}};
}

}  // namespace lsm::testing
