// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuSampler on a Backend. Hops whose fanouts bound their memory run one after the other: kernels
// leave the sizes that the next ones need in GPU memory, and the host reads all of them at the end.
// A hop without a bound takes two waits, one for the number of its edges.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/core/ordered_sum.h"
#include "kernels/core/philox.h"
#include "kernels/sample/gpu_sampler.h"
#include "kernels/sample/labor_functors.h"
#include "kernels/sample/ladies_functors.h"
#include "kernels/sample/sampler_functors.h"

namespace lsm {

template <class Id, class Backend>
class SamplerOnBackend final : public GpuSampler {
 public:
  SamplerOnBackend(std::unique_ptr<Backend> backend, const GpuGraph& graph,
                   std::vector<int64_t> fanouts, const Sampling& sampling)
      : backend_(std::move(backend)),
        graph_(graph),
        fanouts_(std::move(fanouts)),
        sampling_(sampling) {
    backend_->enter();
    error_.grow(kNumErrors);
    batch_sizes_.grow(static_cast<int64_t>(fanouts_.size()) + 2);
  }
  ~SamplerOnBackend() override { backend_->drain(); }

  SampleSizes sample(std::span<const int64_t> seeds, const BatchName& batch,
                     EdgeIds edge_ids) override {
    backend_->enter();
    records_edge_ids_ = edge_ids == EdgeIds::kRecord;
    batch_ = batch;
    sizes_ = {};
    capacity_ = 0;
    add_seeds(seeds);
    for (size_t hop = 0; hop < fanouts_.size();) {
      const size_t next = expand(hop);
      finish(hop, next, seeds);
      hop = next;
    }
    if (fanouts_.empty()) {
      make_room({0, 0});
      backend_->fill(indptr_.data(), 0, sizeof(int64_t));
      check_seeds(seeds, read(error_.data()));
    }
    return sizes_;
  }

  void copy_to(const SampleOutput& output) override {
    backend_->enter();
    const size_t edge_bytes = sizes_.num_edges * sizeof(int64_t);
    backend_->copy(output.n_id, n_id_.data(), sizes_.num_nodes * sizeof(int64_t));
    backend_->copy(output.edges, sources_.data(), edge_bytes);
    backend_->copy(output.edges + sizes_.num_edges, destinations_.data(), edge_bytes);
    if (ladies() != nullptr) {
      backend_->copy(output.weights, weights_.data(), sizes_.num_edges * sizeof(float));
    }
    backend_->copy(output.indptr, indptr_.data(), (sizes_.num_expanded + 1) * sizeof(int64_t));
    backend_->synchronize();
  }

  void copy_edge_ids(int64_t* out) override {
    backend_->enter();
    backend_->copy(out, edge_ids_.data(), sizes_.num_edges * sizeof(int64_t));
    backend_->synchronize();
  }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;
  static constexpr int64_t kMaxNodes = int64_t{1} << 30;
  static constexpr int64_t kMostEdges = int64_t{1} << 20;
  static constexpr int64_t kNumErrors = 2;  // a repeated seed, a damaged edge
  using SumOfCounts = OrderedSum<device_sample::CountEdges>;
  using SumOfNew = OrderedSum<device_sample::NumberNodes>;

  /// At most: nodes that a hop expands, and edges into them.
  struct Bound {
    int64_t nodes, edges;
  };

  void add_seeds(std::span<const int64_t> seeds) {
    const int64_t count = static_cast<int64_t>(seeds.size());
    for (int64_t i = 0; i < count; ++i) {
      check_argument(seeds[i] >= 0 && seeds[i] < graph_.num_nodes, "seeds: expected ids in [0, ",
                     graph_.num_nodes, "), got ", seeds[i], " at position ", i);
    }
    n_id_.upload(seeds);
    sizes_.num_nodes = count;
    sizes_.num_sampled_nodes.push_back(count);
    backend_->fill(error_.data(), 0x7F, kNumErrors * sizeof(int64_t));  // kNoError
  }

  /// Throws if the seed at position `bad` was there before.
  static void check_seeds(std::span<const int64_t> seeds, int64_t bad) {
    check_argument(bad == device_sample::kNoError, "seeds: expected distinct ids, got ",
                   bad == device_sample::kNoError ? 0 : seeds[bad], " again at position ", bad);
  }

  /// Of the hops from `hop` on until the first without one. It is in their fanouts: the memory for
  /// as many edges as there may be must not cost more than to wait.
  std::vector<Bound> bounds_from(size_t hop) const {
    std::vector<Bound> bounds;
    if (ladies() != nullptr) return bounds;
    Bound next{sizes_.num_nodes - sizes_.num_expanded, 0};
    for (int64_t left = kMostEdges; hop < fanouts_.size(); ++hop) {
      const int64_t fanout = fanouts_[hop];
      if (fanout < 0 || (fanout > 0 && next.nodes > left / fanout)) break;
      next.edges = next.nodes * fanout;
      left -= next.edges;
      bounds.push_back(next);
      next.nodes = std::min(next.edges, graph_.num_nodes);
    }
    return bounds;
  }

  /// Queues the hops from `hop` on that need no sizes on the host between them; at least one.
  /// Returns the next.
  size_t expand(size_t hop) {
    const std::vector<Bound> bounds = bounds_from(hop);
    const int64_t num_known = sizes_.num_nodes - sizes_.num_expanded;
    const device_sample::BatchSize known[] = {{sizes_.num_expanded, 0},
                                              {sizes_.num_nodes, sizes_.num_edges}};
    backend_->upload(batch_sizes_.data() + hop, known, sizeof(known));
    if (bounds.empty()) {
      expand_counted(static_cast<uint32_t>(hop), num_known);
      return hop + 1;
    }
    Bound most{num_known, 0};
    int64_t num_words = 0;
    for (const Bound& bound : bounds) {
      most = {std::max(most.nodes, bound.nodes), most.edges + bound.edges};
      num_words += SumOfCounts::state_words(bound.nodes) + SumOfNew::state_words(bound.edges);
    }
    make_room(most);
    clear_state(num_words);
    for (const Bound& bound : bounds) expand_bounded(static_cast<uint32_t>(hop++), bound);
    return hop;
  }

  void expand_bounded(uint32_t hop, const Bound& most) {
    const LaborSampling* const shares_draws = labor();
    const device_sample::Expanded nodes = expanded(hop, most.nodes);
    const device_sample::DrawNodes draw{nodes, key(), hop, positions_.data()};
    count_edges(nodes, most.nodes, fanouts_[hop],
                shares_draws == nullptr ? draw : device_sample::DrawNodes{});
    if (shares_draws != nullptr) choose(*shares_draws, nodes, most, hop);
    load(nodes, most);
  }

  /// A hop into `count` nodes whose edges are counted before there is memory for them.
  void expand_counted(uint32_t hop, int64_t count) {
    const LadiesSampling* const has_layers = ladies();
    make_room({count, 0});
    clear_state(SumOfCounts::state_words(count));
    device_sample::Expanded nodes = expanded(hop, count);
    count_edges(nodes, count, has_layers != nullptr ? -1 : fanouts_[hop], {});
    Bound most{count, read(nodes.offset + count)};
    if (has_layers != nullptr) {
      nodes = choose_layer_of(*has_layers, nodes, &most, fanouts_[hop], hop);
    }
    make_room(most);
    nodes.n_id = n_id_.data();  // which may have grown
    clear_state(SumOfNew::state_words(most.edges));
    if (const LaborSampling* const shares_draws = labor()) {
      choose(*shares_draws, nodes, most, hop);
    } else if (has_layers == nullptr) {
      backend_->for_each(count, device_sample::DrawNodes{nodes, key(), hop, positions_.data()});
    }
    load(nodes, most);
  }

  const LaborSampling* labor() const { return std::get_if<LaborSampling>(&sampling_); }
  const LadiesSampling* ladies() const { return std::get_if<LadiesSampling>(&sampling_); }

  uint64_t key() const {
    return batch_key(batch_.seed, batch_.epoch, batch_.iteration, batch_.rank);
  }

  /// The nodes of a hop, at most `most`.
  device_sample::Expanded expanded(uint32_t hop, int64_t most) {
    return {n_id_.data(), batch_sizes_.data() + hop, first_.grow(most), degree_.grow(most),
            offset_.grow(most + 1)};
  }

  void count_edges(const device_sample::Expanded& nodes, int64_t most, int64_t fanout,
                   const device_sample::DrawNodes& draw) {
    const uint64_t limit = fanout < 0 ? UINT64_MAX : static_cast<uint64_t>(fanout);
    sum(device_sample::CountEdges{graph_.indptr, limit, nodes, draw}, most);
  }

  /// LABOR's edges.
  void choose(const LaborSampling& kind, const device_sample::Expanded& nodes, const Bound& most,
              uint32_t hop) {
    backend_->for_each_warp(most.nodes, device_sample::ChooseNodes<Id>{
                                            indices(), nodes, SourceDraws::of(kind, batch_, hop),
                                            heaps_.grow(most.edges), positions_.data()});
  }

  /// Loads the drawn edges, and numbers the nodes that they name first.
  void load(const device_sample::Expanded& nodes, const Bound& most) {
    using Load = device_sample::LoadSources<Id>;
    backend_->for_each_warp(Load::num_warps(most.nodes, most.edges),
                            Load{indices(), graph_.num_nodes, nodes, positions_.data(), edges(),
                                 error_.data() + 1, indptr_.data()});
    sum(device_sample::NumberNodes{nodes, edges(), n_id_.data()}, most.edges);
  }

  /// Reads the sizes of hops [first, last) and throws their errors.
  void finish(size_t first, size_t last, std::span<const int64_t> seeds) {
    std::vector<device_sample::BatchSize> read_sizes(last - first);
    backend_->download(read_sizes.data(), batch_sizes_.data() + first + 2,
                       read_sizes.size() * sizeof(device_sample::BatchSize));
    int64_t bad[kNumErrors] = {};
    backend_->download(bad, error_.data(), sizeof(bad));
    backend_->synchronize();
    check_seeds(seeds, bad[0]);
    if (bad[1] != device_sample::kNoError) throw_damaged(read(edges().sources + bad[1]));
    const int64_t old_edges = sizes_.num_edges;
    for (const device_sample::BatchSize& size : read_sizes) {
      sizes_.num_sampled_nodes.push_back(size.nodes - sizes_.num_nodes);
      sizes_.num_sampled_edges.push_back(size.edges - sizes_.num_edges);
      sizes_.num_expanded = sizes_.num_nodes;
      sizes_.num_nodes = size.nodes;
      sizes_.num_edges = size.edges;
    }
    backend_->for_each(sizes_.num_edges - old_edges, device_sample::Relabel{edges(), old_edges});
  }

  /// Of `most.edges` edges into the nodes, those to keep: their positions and weights. Counts them
  /// in `most`. The host chooses among the candidates, of which there are as many as nodes that the
  /// hop could reach.
  device_sample::Expanded choose_layer_of(const LadiesSampling& kind,
                                          const device_sample::Expanded& all, Bound* most,
                                          int64_t size, uint32_t hop) {
    const int64_t num_candidates = std::min(most->edges, graph_.num_nodes);
    const int64_t num_slots =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * num_candidates + 1)));
    const device_sample::Table candidates{candidate_ids_.grow(num_slots), mass_.grow(num_slots),
                                          static_cast<uint64_t>(num_slots - 1)};
    backend_->fill(candidates.ids, 0xFF, num_slots * sizeof(int64_t));
    backend_->fill(candidates.values, 0, num_slots * sizeof(int64_t));
    backend_->for_each(most->edges,
                       device_sample::CollectCandidates<Id>{
                           indices(), graph_.num_nodes, all, most->nodes, mass_shift(most->nodes),
                           candidates, candidate_slot_.grow(most->edges), error_.data() + 1});
    const std::vector<LayerCandidate> list =
        list_candidates(candidates, num_slots, num_candidates, all, most->nodes);
    std::vector<double> coefficients(list.size());
    choose_layer(list, size, key(), hop, kind.debias, coefficients);
    coefficients_.upload(coefficients);
    return keep(kind, all, most);
  }

  /// Of up to `most`.
  std::vector<LayerCandidate> list_candidates(const device_sample::Table& candidates,
                                              int64_t num_slots, int64_t most,
                                              const device_sample::Expanded& all, int64_t count) {
    const device_sample::ListCandidates items{num_slots,
                                              candidates,
                                              table(),
                                              number_.grow(num_slots),
                                              candidates_.grow(most),
                                              num_candidates_.grow(1)};
    clear_state(OrderedSum<device_sample::ListCandidates>::state_words(num_slots));
    sum(items, num_slots);
    int64_t bad = 0;
    backend_->download(&bad, error_.data() + 1, sizeof(bad));
    std::vector<LayerCandidate> list(read(items.num_candidates));
    if (bad != device_sample::kNoError) throw_damaged(all, count, bad);
    backend_->download(list.data(), items.list, list.size() * sizeof(LayerCandidate));
    backend_->synchronize();
    return list;
  }

  device_sample::Expanded keep(const LadiesSampling& kind, const device_sample::Expanded& all,
                               Bound* most) {
    const int64_t count = most->nodes, num_edges = most->edges;
    const device_sample::KeepEdges items{num_edges,
                                         all,
                                         count,
                                         candidate_slot_.data(),
                                         number_.data(),
                                         coefficients_.data(),
                                         kept_rank_.grow(num_edges + 1),
                                         positions_.grow(num_edges),
                                         of_edge_.grow(num_edges)};
    clear_state(OrderedSum<device_sample::KeepEdges>::state_words(num_edges));
    sum(items, num_edges);
    device_sample::Expanded kept = all;
    kept.offset = kept_offset_.grow(count + 1);
    backend_->for_each(count + 1, device_sample::CountKept{all, kept, count, items.rank});
    most->edges = read(items.rank + num_edges);
    const int64_t old_edges = sizes_.num_edges;
    float* const weights = weights_.grow(old_edges + most->edges, old_edges) + old_edges;
    backend_->for_each(count, device_sample::WeighEdges{kept, kind.debias, items.of_edge, weights});
    return kept;
  }

  /// For an edge among all into the nodes.
  [[noreturn]] void throw_damaged(const device_sample::Expanded& all, int64_t count, int64_t edge) {
    std::vector<int64_t> offset(count + 1);
    std::vector<int64_t> first(count);
    backend_->download(offset.data(), all.offset, offset.size() * sizeof(int64_t));
    backend_->download(first.data(), all.first, first.size() * sizeof(int64_t));
    backend_->synchronize();
    const int64_t i = device_sample::node_of(offset.data(), 0, count, edge);
    Id id = 0;
    backend_->download(&id, indices() + first[i] + edge - offset[i], sizeof(Id));
    backend_->synchronize();
    throw_damaged(id);
  }

  [[noreturn]] void throw_damaged(int64_t id) const {
    throw ArgumentError(concat("indices: expected ids in [0, ", graph_.num_nodes, "), got ", id,
                               "; the topology is damaged: check it with `lsm data verify`"));
  }

  int64_t read(const int64_t* value) {
    int64_t result = 0;
    backend_->download(&result, value, sizeof(result));
    backend_->synchronize();
    return result;
  }

  const Id* indices() const { return static_cast<const Id*>(graph_.indices); }

  device_sample::Table table() const {
    return {table_ids_.data(), table_values_.data(), static_cast<uint64_t>(capacity_ - 1)};
  }

  device_sample::Edges edges() const {
    return {table(), sources_.data(), destinations_.data(), slot_.data(),
            records_edge_ids_ ? edge_ids_.data() : nullptr};
  }

  /// Zeroes what the next sums need.
  void clear_state(int64_t num_words) {
    backend_->fill(state_.grow(num_words), 0, num_words * sizeof(uint64_t));
    num_words_used_ = 0;
  }

  template <class Items>
  void sum(const Items& items, int64_t most) {
    using Sum = OrderedSum<Items>;
    backend_->for_each_warp(Sum::num_tiles(most), Sum{items, state_.data() + num_words_used_});
    num_words_used_ += Sum::state_words(most);
  }

  /// Makes room for hops that expand up to `most.nodes` nodes each, and have up to `most.edges`
  /// edges together.
  void make_room(const Bound& most) {
    reserve(std::min(sizes_.num_nodes + most.edges, graph_.num_nodes));
    first_.grow(most.nodes);
    degree_.grow(most.nodes);
    offset_.grow(most.nodes + 1);
    const int64_t old_edges = sizes_.num_edges, num_edges = old_edges + most.edges;
    sources_.grow(num_edges, old_edges);
    destinations_.grow(num_edges, old_edges);
    slot_.grow(num_edges);
    if (records_edge_ids_) edge_ids_.grow(num_edges, old_edges);
    indptr_.grow(sizes_.num_nodes + most.edges + 1, sizes_.num_expanded);
    positions_.grow(most.edges);
  }

  /// Makes room for `max_nodes` nodes, and enters those there are. The table is made anew only if
  /// it is too small.
  void reserve(int64_t max_nodes) {
    check_argument(max_nodes <= kMaxNodes, "a batch of up to ", max_nodes,
                   " nodes; at most 2^30 are supported: use smaller batches or fanouts");
    const int64_t num_nodes = sizes_.num_nodes;
    const int64_t* const n_id = n_id_.grow(max_nodes, num_nodes);
    const int64_t needed =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * max_nodes + 1)));
    if (needed <= capacity_) return;
    capacity_ = needed;
    backend_->fill(table_ids_.grow(needed), 0xFF, needed * sizeof(int64_t));     // -1
    backend_->fill(table_values_.grow(needed), 0x7F, needed * sizeof(int64_t));  // above all
    backend_->for_each(num_nodes, device_sample::EnterNodes{table(), n_id, error_.data()});
  }

  const std::unique_ptr<Backend> backend_;  // outlives the arrays
  const GpuGraph graph_;
  const std::vector<int64_t> fanouts_;
  const Sampling sampling_;
  BatchName batch_;
  bool records_edge_ids_ = false;
  SampleSizes sizes_;
  int64_t capacity_ = 0;        // of the table, in this batch
  int64_t num_words_used_ = 0;  // of state_
  // The subgraph.
  Array<int64_t> n_id_{*backend_};
  Array<int64_t> sources_{*backend_};
  Array<int64_t> destinations_{*backend_};
  Array<int64_t> indptr_{*backend_};
  Array<int64_t> edge_ids_{*backend_};
  Array<uint32_t> slot_{*backend_};
  Array<int64_t> table_ids_{*backend_};
  Array<int64_t> table_values_{*backend_};
  Array<device_sample::BatchSize> batch_sizes_{*backend_};  // empty, of the seeds, after each hop
  Array<int64_t> error_{*backend_};
  // Of a hop.
  Array<int64_t> first_{*backend_};
  Array<uint32_t> degree_{*backend_};
  Array<int64_t> offset_{*backend_};
  Array<uint32_t> positions_{*backend_};
  Array<uint64_t> heaps_{*backend_};
  Array<uint64_t> state_{*backend_};  // of sums
  // Of LADIES.
  Array<float> weights_{*backend_};
  Array<int64_t> candidate_ids_{*backend_};
  Array<int64_t> mass_{*backend_};
  Array<uint32_t> candidate_slot_{*backend_};
  Array<int64_t> number_{*backend_};
  Array<int64_t> num_candidates_{*backend_};
  Array<LayerCandidate> candidates_{*backend_};
  Array<double> coefficients_{*backend_};
  Array<int64_t> kept_rank_{*backend_};
  Array<int64_t> kept_offset_{*backend_};
  Array<double> of_edge_{*backend_};
};

template <class Backend>
std::unique_ptr<GpuSampler> make_sampler_on_backend(std::unique_ptr<Backend> backend,
                                                    const GpuGraph& graph,
                                                    std::vector<int64_t> fanouts,
                                                    const Sampling& sampling) {
  if (graph.has_wide_ids) {
    return std::make_unique<SamplerOnBackend<int64_t, Backend>>(std::move(backend), graph,
                                                                std::move(fanouts), sampling);
  }
  return std::make_unique<SamplerOnBackend<int32_t, Backend>>(std::move(backend), graph,
                                                              std::move(fanouts), sampling);
}

}  // namespace lsm
