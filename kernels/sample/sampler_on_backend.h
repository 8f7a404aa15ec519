// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuSampler on a Backend. A wait per hop, for the numbers of its edges and of its new nodes; one
// more where its fanout does not say how much memory it takes at most.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
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
    for (size_t hop = 0; hop < fanouts_.size(); ++hop) {
      expand(static_cast<uint32_t>(hop), fanouts_[hop], seeds);
    }
    if (fanouts_.empty()) check_seeds(seeds, read(error_.data()));
    return sizes_;
  }

  void copy_to(const SampleOutput& output) override {
    backend_->enter();
    const size_t edge_bytes = sizes_.num_edges * sizeof(int64_t);
    backend_->copy(output.n_id, n_id_.data(), sizes_.num_nodes * sizeof(int64_t));
    backend_->copy(output.edges, sources_.data(), edge_bytes);
    backend_->copy(output.edges + sizes_.num_edges, destinations_.data(), edge_bytes);
    if (sampling_.kind == SamplingKind::kLadies) {
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

  void add_seeds(std::span<const int64_t> seeds) {
    const int64_t count = static_cast<int64_t>(seeds.size());
    for (int64_t i = 0; i < count; ++i) {
      check_argument(seeds[i] >= 0 && seeds[i] < graph_.num_nodes, "seeds: expected ids in [0, ",
                     graph_.num_nodes, "), got ", seeds[i], " at position ", i);
    }
    n_id_.upload(seeds);
    sizes_.num_nodes = count;
    reserve(std::min(most_nodes(count), graph_.num_nodes));
    const int64_t none[kNumErrors] = {device_sample::kNoError, device_sample::kNoError};
    backend_->upload(error_.data(), none, sizeof(none));
    const device_sample::CheckSeeds check{table(), n_id_.data(), error_.data()};
    backend_->for_each(count, check);
    const int64_t zero = 0;
    backend_->upload(indptr_.grow(1), &zero, sizeof(zero));
    sizes_.num_sampled_nodes.push_back(count);
  }

  /// Throws if the seed at position `bad` was there before.
  static void check_seeds(std::span<const int64_t> seeds, int64_t bad) {
    check_argument(bad == device_sample::kNoError, "seeds: expected distinct ids, got ",
                   bad == device_sample::kNoError ? 0 : seeds[bad], " again at position ", bad);
  }

  /// Nodes of a batch with so many seeds, at most, after as many hops as have few enough.
  int64_t most_nodes(int64_t num_seeds) const {
    int64_t total = num_seeds, last = num_seeds;
    for (const int64_t fanout : fanouts_) {
      const int64_t edges = most_edges(last, fanout);
      if (edges < 0 || total + edges > kMostEdges) break;
      total += edges;
      last = edges;
    }
    return total;
  }

  /// Edges into `count` nodes, or -1 where that has to be found out: the memory for as many as
  /// there may be costs more than to wait.
  int64_t most_edges(int64_t count, int64_t fanout) const {
    if (sampling_.kind == SamplingKind::kLadies || fanout < 0) return -1;
    if (fanout > kMostEdges || count * fanout > kMostEdges) return -1;
    return count * fanout;
  }

  void expand(uint32_t hop, int64_t fanout, std::span<const int64_t> seeds) {
    const int64_t begin = sizes_.num_expanded;
    const int64_t count = sizes_.num_nodes - begin;
    const bool is_ladies = sampling_.kind == SamplingKind::kLadies;
    device_sample::Expanded nodes = count_edges(begin, count, is_ladies ? -1 : fanout);
    if (is_ladies) nodes = choose_layer_of(nodes, count, fanout, hop);
    const int64_t bound = most_edges(count, fanout);
    const int64_t most = bound < 0 ? read(nodes.offset + count) : bound;
    reserve(std::min(sizes_.num_nodes + most, graph_.num_nodes));
    nodes.n_id = n_id_.data();  // which may have grown
    const device_sample::HopEdges edges = draw(nodes, count, most, hop);
    const auto [new_nodes, new_edges] = relabel(edges, most, seeds);
    sizes_.num_expanded = sizes_.num_nodes;
    sizes_.num_nodes += new_nodes;
    sizes_.num_edges += new_edges;
    sizes_.num_sampled_nodes.push_back(new_nodes);
    sizes_.num_sampled_edges.push_back(new_edges);
  }

  device_sample::Expanded count_edges(int64_t begin, int64_t count, int64_t fanout) {
    const device_sample::Expanded nodes{n_id_.data(),           begin,
                                        first_.grow(count),     degree_.grow(count),
                                        count_.grow(count + 1), offset_.grow(count + 1)};
    const uint64_t limit = fanout < 0 ? UINT64_MAX : static_cast<uint64_t>(fanout);
    backend_->for_each(count, device_sample::CountEdges{graph_.indptr, nodes, limit});
    backend_->exclusive_sum(nodes.count, nodes.offset, count);
    return nodes;
  }

  /// Of `all` edges into the nodes, those to keep: their positions and weights. The host chooses
  /// among the candidates, of which there are as many as nodes that the hop could reach.
  device_sample::Expanded choose_layer_of(const device_sample::Expanded& all, int64_t count,
                                          int64_t size, uint32_t hop) {
    const int64_t num_edges = read(all.offset + count);
    uint32_t* const slot = slot_.grow(num_edges);
    const int64_t most = std::min(num_edges, graph_.num_nodes);
    const int64_t num_slots =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * most + 1)));
    const device_sample::Table candidates{candidate_ids_.grow(num_slots), mass_.grow(num_slots),
                                          static_cast<uint64_t>(num_slots - 1)};
    backend_->fill(candidates.ids, 0xFF, num_slots * sizeof(int64_t));
    backend_->fill(candidates.values, 0, num_slots * sizeof(int64_t));
    backend_->for_each(num_edges,
                       device_sample::CollectCandidates<Id>{
                           static_cast<const Id*>(graph_.indices), graph_.num_nodes, all, count,
                           mass_shift(count), candidates, slot, error_.data() + 1});
    int64_t* const place = rank_.grow(num_slots + 1);
    const double* const coefficients = choose(candidates, num_slots, place, all, count, size, hop);
    return keep(all, count, num_edges, slot, place, coefficients);
  }

  /// Returns the coefficients of candidates by their place, which it writes by slot.
  const double* choose(const device_sample::Table& candidates, int64_t num_slots, int64_t* place,
                       const device_sample::Expanded& all, int64_t count, int64_t size,
                       uint32_t hop) {
    int64_t* const is_used = is_first_.grow(num_slots + 1);
    backend_->for_each(num_slots, device_sample::FlagSlots{candidates, is_used});
    backend_->exclusive_sum(is_used, place, num_slots);
    const int64_t bad = read(error_.data() + 1);
    if (bad != device_sample::kNoError) throw_damaged(all, count, bad);
    const int64_t num_candidates = read(place + num_slots);
    LayerCandidate* const list = candidates_.grow(num_candidates);
    backend_->for_each(num_slots, device_sample::ListCandidates{candidates, table(), place, list});
    std::vector<LayerCandidate> host(num_candidates);
    backend_->download(host.data(), list, host.size() * sizeof(LayerCandidate));
    backend_->synchronize();
    std::vector<double> coefficients(num_candidates);
    const uint64_t key = batch_key(batch_.seed, batch_.epoch, batch_.iteration, batch_.rank);
    choose_layer(host, size, key, hop, sampling_.debias, coefficients);
    return coefficients_.upload(coefficients);
  }

  device_sample::Expanded keep(const device_sample::Expanded& all, int64_t count, int64_t num_edges,
                               const uint32_t* slot, const int64_t* place,
                               const double* coefficients) {
    int64_t* const is_kept = is_kept_.grow(num_edges + 1);
    int64_t* const rank = kept_rank_.grow(num_edges + 1);
    backend_->for_each(num_edges, device_sample::MarkKept{slot, place, coefficients, is_kept});
    backend_->exclusive_sum(is_kept, rank, num_edges);
    device_sample::Expanded kept = all;
    kept.count = kept_count_.grow(count + 1);
    kept.offset = kept_offset_.grow(count + 1);
    backend_->for_each(count + 1, device_sample::CountKept{all, kept, count, rank});
    const int64_t num_kept = read(rank + num_edges);
    const int64_t old_edges = sizes_.num_edges;
    double* const of_edge = of_edge_.grow(num_kept);
    float* const weights = weights_.grow(old_edges + num_kept, old_edges) + old_edges;
    backend_->for_each(
        num_edges, device_sample::PlaceKept{all, count, slot, place, coefficients, is_kept, rank,
                                            positions_.grow(num_kept), of_edge});
    backend_->for_each(count, device_sample::WeighEdges{kept, sampling_.debias, of_edge, weights});
    return kept;
  }

  /// For an edge among all into the nodes.
  [[noreturn]] void throw_damaged(const device_sample::Expanded& all, int64_t count, int64_t edge) {
    std::vector<int64_t> offset(count + 1);
    std::vector<int64_t> first(count);
    backend_->download(offset.data(), all.offset, offset.size() * sizeof(int64_t));
    backend_->download(first.data(), all.first, first.size() * sizeof(int64_t));
    backend_->synchronize();
    const device_sample::Expanded host{nullptr, 0, nullptr, nullptr, nullptr, offset.data()};
    const int64_t i = device_sample::node_of(host, 0, count, edge);
    Id id = 0;
    backend_->download(&id, static_cast<const Id*>(graph_.indices) + first[i] + edge - offset[i],
                       sizeof(Id));
    backend_->synchronize();
    throw_damaged(id);
  }

  [[noreturn]] void throw_damaged(int64_t id) const {
    throw ArgumentError(concat("indices: expected ids in [0, ", graph_.num_nodes, "), got ", id,
                               "; the topology is damaged: check it with `lsm data verify`"));
  }

  /// `most`: edges, at most.
  device_sample::HopEdges draw(const device_sample::Expanded& nodes, int64_t count, int64_t most,
                               uint32_t hop) {
    const int64_t old_edges = sizes_.num_edges;
    const Id* const indices = static_cast<const Id*>(graph_.indices);
    uint32_t* const positions = positions_.grow(most);  // LADIES has written them
    if (sampling_.kind == SamplingKind::kLabor) {
      backend_->for_each_warp(count, device_sample::ChooseNodes<Id>{
                                         indices, nodes, SourceDraws::of(sampling_, batch_, hop),
                                         heaps_.grow(most), positions});
    } else if (sampling_.kind == SamplingKind::kNeighbor) {
      const uint64_t key = batch_key(batch_.seed, batch_.epoch, batch_.iteration, batch_.rank);
      backend_->for_each(count, device_sample::DrawNodes{nodes, key, hop, positions});
    }
    const device_sample::HopEdges edges{
        table(),
        sources_.grow(old_edges + most, old_edges) + old_edges,
        destinations_.grow(old_edges + most, old_edges) + old_edges,
        slot_.grow(most),
        is_first_.grow(most + 1),
        rank_.grow(most + 1),
        records_edge_ids_ ? edge_ids_.grow(old_edges + most, old_edges) + old_edges : nullptr,
        nodes.offset + count};
    const device_sample::LoadSources<Id> load{
        indices,
        graph_.num_nodes,
        nodes,
        count,
        positions,
        edges,
        error_.data() + 1,
        old_edges,
        indptr_.grow(nodes.begin + count + 1, nodes.begin + 1) + nodes.begin};
    backend_->for_each_warp(load.num_warps(most), load);
    return edges;
  }

  /// Returns the numbers of new nodes and of edges, of which there are at most `most`.
  std::pair<int64_t, int64_t> relabel(const device_sample::HopEdges& edges, int64_t most,
                                      std::span<const int64_t> seeds) {
    backend_->for_each(most, device_sample::MarkFirst{edges});
    backend_->exclusive_sum(edges.is_first, edges.rank, most);
    int64_t bad[kNumErrors] = {}, new_edges = 0;
    backend_->download(bad, error_.data(), sizeof(bad));
    backend_->download(&new_edges, edges.count, sizeof(new_edges));
    const int64_t new_nodes = read(edges.rank + most);
    check_seeds(seeds, bad[0]);
    if (bad[1] != device_sample::kNoError) throw_damaged(read(edges.sources + bad[1]));
    backend_->for_each(new_edges, device_sample::Relabel{edges, sizes_.num_nodes, n_id_.data()});
    return {new_nodes, new_edges};
  }

  int64_t read(const int64_t* value) {
    int64_t result = 0;
    backend_->download(&result, value, sizeof(result));
    backend_->synchronize();
    return result;
  }

  /// Makes room for `max_nodes` nodes, and enters those there are. The table is made anew only if
  /// it is too small.
  void reserve(int64_t max_nodes) {
    check_argument(max_nodes <= kMaxNodes, "a batch of up to ", max_nodes,
                   " nodes; at most 2^30 are supported: use smaller batches or fanouts");
    const int64_t num_nodes = sizes_.num_nodes;
    n_id_.grow(max_nodes, num_nodes);
    const int64_t needed =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * max_nodes + 1)));
    if (needed <= capacity_) return;
    capacity_ = needed;
    backend_->fill(table_ids_.grow(needed), 0xFF, needed * sizeof(int64_t));     // -1
    backend_->fill(table_values_.grow(needed), 0x7F, needed * sizeof(int64_t));  // above all
    backend_->for_each(num_nodes, device_sample::EnterNodes{table(), n_id_.data()});
  }

  device_sample::Table table() const {
    return {table_ids_.data(), table_values_.data(), static_cast<uint64_t>(capacity_ - 1)};
  }

  const std::unique_ptr<Backend> backend_;  // outlives the arrays
  const GpuGraph graph_;
  const std::vector<int64_t> fanouts_;
  const Sampling sampling_;
  BatchName batch_;
  bool records_edge_ids_ = false;
  SampleSizes sizes_;
  int64_t capacity_ = 0;  // of the table, in this batch
  // The subgraph.
  Array<int64_t> n_id_{*backend_};
  Array<int64_t> sources_{*backend_};
  Array<int64_t> destinations_{*backend_};
  Array<int64_t> indptr_{*backend_};
  Array<int64_t> edge_ids_{*backend_};
  Array<int64_t> table_ids_{*backend_};
  Array<int64_t> table_values_{*backend_};
  // Of a hop.
  Array<int64_t> first_{*backend_};
  Array<uint32_t> degree_{*backend_};
  Array<int64_t> count_{*backend_};
  Array<int64_t> offset_{*backend_};
  Array<uint32_t> positions_{*backend_};
  Array<uint64_t> heaps_{*backend_};
  Array<uint32_t> slot_{*backend_};
  Array<int64_t> is_first_{*backend_};
  Array<int64_t> rank_{*backend_};
  Array<int64_t> error_{*backend_};
  // Of LADIES.
  Array<float> weights_{*backend_};
  Array<int64_t> candidate_ids_{*backend_};
  Array<int64_t> mass_{*backend_};
  Array<LayerCandidate> candidates_{*backend_};
  Array<double> coefficients_{*backend_};
  Array<int64_t> is_kept_{*backend_};
  Array<int64_t> kept_rank_{*backend_};
  Array<int64_t> kept_count_{*backend_};
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
