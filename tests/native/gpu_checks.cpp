// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/native/gpu_checks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <numeric>
#include <span>
#include <utility>

#include "kernels/sample/typed_sampler.h"

namespace lsm::testing {
namespace {

/// For code of the host, which reaches all memory.
class AnyMemory final : public CheckedMemory {
 public:
  std::byte* rows(size_t bytes) override { return take(bytes); }
  std::byte* staging(std::span<const std::byte> contents) override {
    std::byte* const memory = take(contents.size());
    std::ranges::copy(contents, memory);
    return memory;
  }
  std::byte* resident(std::span<const std::byte> contents) override { return staging(contents); }
  std::vector<std::byte> fetch(const std::byte* rows, size_t bytes) override {
    return {rows, rows + bytes};
  }

 private:
  std::byte* take(size_t bytes) {
    return taken_.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
  }

  std::vector<std::unique_ptr<std::byte[]>> taken_;
};

/// A planner of `planned` with the sets of a twin.
std::unique_ptr<cache::Planner> make_twin(const PlannerCase& planned,
                                          std::unique_ptr<cache::GpuSetCache> sets) {
  const std::vector<std::span<const int64_t>> trace(planned.batches.begin(), planned.batches.end());
  cache::PlannerInput input{planned.scores, planned.static_ids, planned.constant_ids, {}};
  if (planned.config.policy == "belady") input.trace = trace;
  return std::make_unique<cache::Planner>(planned.config, input, std::make_shared<ThreadPool>(1),
                                          std::move(sets));
}

/// Expects that a batch is refused, which leaves no trace in later plans.
void expect_refused(cache::Planner& planner, const std::vector<int64_t>& ids) {
  bool is_refused = false;
  try {
    planner.push(ids);
  } catch (const ArgumentError&) {
    is_refused = true;
  }
  LSM_EXPECT(is_refused, "a batch with an id of ", ids.back());
}

/// A plan, which a GPU may hold, and its requests.
struct PlannedBatch {
  const cache::Plan& plan;
  std::span<const int64_t> ids;
};

/// Expects the rows of a batch in `rows`, from the last to the first if `backwards`.
void expect_rows(const PlannedBatch& batch, std::span<const std::byte> rows, int64_t row_bytes,
                 bool backwards = false) {
  const size_t count = batch.ids.size();
  for (size_t i = 0; i < count; ++i) {
    const auto row = rows.subspan(i * static_cast<size_t>(row_bytes), row_bytes);
    LSM_EXPECT(is_row(row, batch.ids[backwards ? count - 1 - i : i]), "iteration ",
               batch.plan.iteration, ", position ", i);
  }
}

/// For three ranks: one wants all rows in order, one all of them backwards, one none.
void replay_to(const CheckedExecutor& checked, const PlannedBatch& batch,
               std::span<const std::byte> staged, int64_t row_bytes) {
  const auto count = static_cast<int64_t>(batch.ids.size());
  const size_t bytes = batch.ids.size() * static_cast<size_t>(row_bytes);
  std::vector<int32_t> in_order(batch.ids.size());
  std::iota(in_order.begin(), in_order.end(), 0);
  const std::vector<int32_t> backwards(in_order.rbegin(), in_order.rend());
  std::byte* const first = checked.memory->rows(bytes);
  std::byte* const second = checked.memory->rows(bytes);
  checked.executor->replay_to(batch.plan, staged,
                              std::array<RowTargets, 3>{{{in_order, first, count, {}},
                                                         {{}, nullptr, 0, {}},
                                                         {in_order, second, count, backwards}}});
  checked.executor->wait_delivered();
  expect_rows(batch, checked.memory->fetch(first, bytes), row_bytes);
  expect_rows(batch, checked.memory->fetch(second, bytes), row_bytes, true);
}

/// One batch of `planned` through the executor, its rows from storage as the files have them.
void replay(const CheckedExecutor& checked, const PlannedBatch& batch, int64_t row_bytes,
            bool is_resident) {
  const cache::Plan& plan = batch.plan;
  const size_t bytes = batch.ids.size() * static_cast<size_t>(row_bytes);
  std::vector<std::byte> read;
  for (const int64_t id : plan.miss_id) {
    const auto row = bytes_of(id, static_cast<size_t>(row_bytes));
    read.insert(read.end(), row.begin(), row.end());
  }
  const std::span staged(
      is_resident ? checked.memory->resident(read) : checked.memory->staging(read), read.size());
  if (plan.iteration % 3 > 0) return replay_to(checked, batch, staged, row_bytes);
  std::byte* const out = checked.memory->rows(bytes);
  checked.executor->replay(plan, staged, {out, bytes});
  checked.executor->synchronize();
  expect_rows(batch, checked.memory->fetch(out, bytes), row_bytes);
}

SampledGraph draw_edges(Random& random, int64_t num_sources, int64_t num_destinations) {
  SampledGraph graph{{0}, {}};
  for (int64_t node = 0; node < num_destinations; ++node) {
    const int64_t degree = random.chance(5) ? random.between(100, 300) : random.between(0, 12);
    for (int64_t i = 0; i < degree; ++i) {
      graph.indices.push_back(static_cast<int32_t>(random.between(0, num_sources - 1)));
    }
    graph.indptr.push_back(static_cast<int64_t>(graph.indices.size()));
  }
  return graph;
}

/// One type of each, and types that share their ends.
std::vector<SampledTypes> draw_graphs(Random& random) {
  std::vector<SampledTypes> graphs;
  for (const int64_t count : {1, 40, 3000}) {
    for (const auto& fanouts : {std::vector<int64_t>{5, -1}, {-1, 5}, {80, 3, 0, 2}}) {
      graphs.push_back({{count}, {{draw_edges(random, count, count), 0, 0, fanouts}}});
    }
  }
  for (const int64_t count : {200, 900}) {
    const std::vector<int64_t> counts = {count, 60, 7};
    for (const auto& fanouts : {std::vector<int64_t>{5, 4, 3}, {-1, 2, 0}, {80, -1, 2}}) {
      SampledTypes graph{counts, {}};
      for (const auto& [source, destination] : {std::pair(0, 0), {1, 0}, {0, 1}, {2, 1}, {1, 0}}) {
        graph.edges.push_back({draw_edges(random, counts[source], counts[destination]), source,
                               destination, fanouts});
        if (graph.edges.size() == 3) graph.edges.back().fanouts[1] = 3;
      }
      graphs.push_back(std::move(graph));
    }
  }
  return graphs;
}

}  // namespace

void check_sample(TypedSampler& host, GpuSampler& sampler, const TypedSeeds& seeds,
                  const BatchName& name) {
  const TypedSubgraph expected = host.sample(std::array{seeds}, name, EdgeIds::kRecord);
  const SampleSizes sizes = sampler.sample(seeds, name, EdgeIds::kRecord);
  LSM_EXPECT(sizes.num_sampled_nodes == expected.num_sampled_nodes, sizes.num_nodes);
  LSM_EXPECT(sizes.num_sampled_edges == expected.num_sampled_edges, sizes.num_edges);
  LSM_EXPECT(sizes.num_bounds == expected.num_bounds, sizes.num_bounds);
  std::vector<int64_t> nodes(sizes.num_nodes), edges(2 * sizes.num_edges), starts(sizes.num_bounds),
      edge_ids(sizes.num_edges), subgraph(expected.subgraph ? sizes.num_nodes : 0);
  sampler.copy_to({nodes.data(), edges.data(), starts.data(), nullptr, subgraph.data()});
  sampler.copy_edge_ids(edge_ids.data());
  const auto same = [](const std::vector<int64_t>& got, const HostBuffer& buffer) {
    return got.empty() || std::memcmp(got.data(), buffer.data(), got.size() * sizeof(int64_t)) == 0;
  };
  LSM_EXPECT(same(nodes, *expected.n_id) && same(edges, *expected.edges) &&
                 same(starts, *expected.indptr) && same(edge_ids, *expected.edge_ids),
             "iteration ", name.iteration);
  LSM_EXPECT(!expected.subgraph || same(subgraph, *expected.subgraph), "iteration ",
             name.iteration);
}

namespace {

enum class Times : uint8_t { kNone, kAny, kLast };
enum class Weights : uint8_t { kNone, kSome };

/// Gives all but the second type of edges weights, of which half are 0.
void draw_weights(Random& random, SampledTypes* types) {
  for (size_t i = 0; i < types->edges.size(); ++i) {
    for (size_t e = 0; i != 1 && e < types->edges[i].graph.indices.size(); ++e) {
      const auto drawn = static_cast<float>(random.between(1, 1000));
      types->edges[i].weights.push_back(random.chance(50) ? drawn : 0);
    }
  }
}

/// Gives every second type of edges times, and nodes of types 0 and 1; many are equal.
void draw_times(Random& random, SampledTypes* types) {
  types->node_times.resize(types->num_nodes.size());
  for (size_t type = 0; type < std::min<size_t>(types->num_nodes.size(), 2); ++type) {
    for (int64_t i = 0; i < types->num_nodes[type]; ++i) {
      types->node_times[type].push_back(random.between(0, 9));
    }
  }
  for (size_t i = 0; i < types->edges.size(); ++i) {
    auto& [graph, source, destination, fanouts, times, weights] = types->edges[i];
    const std::vector<int64_t>& of_sources = types->node_times[source];
    const auto time_of = [&](int32_t id) { return of_sources[static_cast<size_t>(id)]; };
    for (size_t e = 0; i % 2 == 0 && e < graph.indices.size(); ++e) {
      times.push_back(random.between(0, 9));
    }
    for (int64_t node = 0; node < graph.num_nodes(); ++node) {
      const int64_t first = graph.indptr[node], last = graph.indptr[node + 1];
      if (!times.empty()) std::sort(times.begin() + first, times.begin() + last);
      if (!times.empty() || of_sources.empty()) continue;
      std::ranges::sort(graph.indices.begin() + first, graph.indices.begin() + last, {}, time_of);
    }
  }
}

/// Samples of random graphs. `times` give each seed a subgraph.
void check_samples_of(const Sampling& sampling, bool disjoint, Times times, Weights weights,
                      const MakeSamplers& make) {
  Random random(5);
  for (SampledTypes& types : draw_graphs(random)) {
    types.sampling = sampling;
    types.disjoint = disjoint || times != Times::kNone;
    types.takes_last = times == Times::kLast;
    if (times != Times::kNone) draw_times(random, &types);
    if (weights != Weights::kNone) draw_weights(random, &types);
    const auto host =
        make_typed_sampler(types.num_nodes, edges_of(types), 1, sampling, options_of(types));
    for (const auto& sampler : make(types)) {
      for (uint64_t iteration = 0; iteration < (types.disjoint ? 2 : 3); ++iteration) {
        auto seeds = skewed_ids(random, types.num_nodes[0], types.disjoint ? 8 : 60);
        if (types.disjoint) seeds.push_back(seeds.front());
        std::vector<int64_t> until;
        for (size_t i = 0; i < seeds.size(); ++i) until.push_back(random.between(-1, 10));
        check_sample(*host, *sampler, {0, seeds, until}, {1, 2, iteration, 3});
      }
    }
  }
}

}  // namespace

void check_plans(const PlannerCase& planned, std::unique_ptr<cache::GpuSetCache> sets) {
  const auto host = planned.make_planner(1), twin = make_twin(planned, std::move(sets));
  TierModel model(planned);
  cache::Plan plan, other;
  for (int64_t t = 0; t < planned.num_batches(); ++t) {
    if (t % 4 == 1) {
      const int64_t end = planned.config.num_nodes;
      for (const auto& ids : {std::vector{end - 1, int64_t{0}, end}, std::vector<int64_t>{0, -1},
                              std::vector{end - 1, int64_t{0}, int64_t{0}}}) {
        expect_refused(*twin, ids);
      }
    }
    planned.push_until(*host, t);
    planned.push_until(*twin, t);
    host->plan(&plan);
    twin->plan(&other);
    other.list();
    LSM_EXPECT(plan.source == other.source && plan.slot == other.slot, planned.name(), ", ", t);
    LSM_EXPECT(plan.counters == other.counters, planned.name(), ", ", t);
    LSM_EXPECT(plan.miss_id == other.miss_id && plan.miss_position == other.miss_position,
               planned.name(), ", iteration ", t);
    LSM_EXPECT(
        plan.victim_slot == other.victim_slot && plan.victim_position == other.victim_position,
        planned.name(), ", iteration ", t);
    LSM_EXPECT(plan.insert_line == other.insert_line && plan.evict_slot == other.evict_slot &&
                   plan.spill_position == other.spill_position &&
                   plan.spill_slot == other.spill_slot,
               planned.name(), ", iteration ", t);
    LSM_EXPECT(plan.counters == other.counters, planned.name(), ", iteration ", t);
    model.check(other);
  }
}

void check_rows(const PlannerCase& planned, int64_t prefetch_rows, RowFiles& files,
                const MakeExecutor& make) {
  constexpr int64_t kAhead = 3;
  const int64_t row_bytes = files.layout().row_bytes;
  const auto storage = files.open("posix");
  CheckedExecutor checked = make(
      {planned.config.num_lines, planned.victim_slots(), prefetch_rows, 60}, *storage, planned);
  if (!checked.memory) checked.memory = std::make_unique<AnyMemory>();
  const auto planner =
      checked.sets ? make_twin(planned, std::move(checked.sets)) : planned.make_planner(1);
  std::deque<cache::Plan> made;
  for (int64_t t = 0; t < planned.num_batches(); ++t) {
    while (planner->num_planned() < std::min(t + kAhead, planned.num_batches())) {
      planned.push_until(*planner, planner->num_planned());
      planner->plan(&made.emplace_back());
    }
    constexpr Staging kWays[] = {Staging::kCopy, Staging::kGather, Staging::kResident,
                                 Staging::kGather};
    const Staging way = kWays[t % 4];
    checked.executor->set_staging(way);
    replay(checked, {made.front(), planned.batches[static_cast<size_t>(t)]}, row_bytes,
           way == Staging::kResident);
    made.pop_front();
    if (!made.empty()) checked.executor->prefetch(made.front().victim_slot);
  }
}

void check_rows_of_plans(int64_t row_bytes, const MakeExecutor& make) {
  uint64_t seed = 300 + 3 * static_cast<uint64_t>(row_bytes);
  RowFiles files({kNumNodes, row_bytes, 4096, 1});
  for (const auto& [policy, mode] : {std::pair("lookahead", "pool"), std::pair("hybrid", "queues"),
                                     std::pair("lru", "pool"), std::pair("clock", "none")}) {
    const auto planned = PlannerCase::draw(++seed, policy, mode, kNumNodes);
    check_rows(planned, static_cast<int64_t>(seed % 3) * 4, files, make);
  }
}

std::vector<TypedEdges> edges_of(const SampledTypes& types) {
  std::vector<TypedEdges> edges;
  for (const auto& [graph, source, destination, fanouts, times, weights] : types.edges) {
    edges.push_back(
        {view_of(graph.indptr), view_of(graph.indices), source, destination, fanouts, {}, {}});
    if (!times.empty()) edges.back().times = view_of(times);
    if (!weights.empty()) edges.back().weights = view_of(weights);
  }
  return edges;
}

TypedOptions options_of(const SampledTypes& types) {
  TypedOptions options{types.disjoint, types.takes_last, {}};
  for (const auto& times : types.node_times) {
    options.node_times.emplace_back();
    if (!times.empty()) options.node_times.back() = view_of(times);
  }
  return options;
}

void check_samples(const MakeSamplers& make) {
  const LaborSampling labor{.layer_dependency = true, .batch_dependency = 2};
  check_samples_of({}, false, Times::kNone, Weights::kNone, make);
  check_samples_of(LaborSampling{}, false, Times::kNone, Weights::kNone, make);
  check_samples_of(labor, false, Times::kNone, Weights::kNone, make);
  check_samples_of({}, false, Times::kNone, Weights::kSome, make);
  check_samples_of({}, true, Times::kNone, Weights::kNone, make);
  check_samples_of({}, true, Times::kAny, Weights::kNone, make);
  check_samples_of({}, true, Times::kLast, Weights::kNone, make);
  check_samples_of({}, true, Times::kAny, Weights::kSome, make);
  check_samples_of(labor, true, Times::kAny, Weights::kNone, make);
}

}  // namespace lsm::testing
