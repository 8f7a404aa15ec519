// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LADIES on a Backend. The host chooses among the candidates, of which there are as many as nodes
// that a hop could reach.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/ordered_sum.h"
#include "kernels/sample/edges_on_backend.h"
#include "kernels/sample/ladies.h"
#include "kernels/sample/ladies_functors.h"
#include "kernels/sample/sums_on_backend.h"

namespace lsm {

/// Chooses among the edges of the graph's one type.
template <class Id, class Backend>
class LadiesOnBackend {
 public:
  using Edges = EdgesOnBackend<Id, Backend>;

  LadiesOnBackend(Backend& backend, SumsOnBackend<Backend>& sums)
      : backend_(backend), sums_(sums) {}

  /// Of `most->edges` edges into the nodes, those to keep: their positions and weights. Counts them
  /// in `most`. `damaged`: an edge among them.
  device_sample::Expanded choose(const LadiesSampling& kind, Edges& edges,
                                 const device_sample::Expanded& all, HopBound* most, uint32_t hop,
                                 int64_t* damaged) {
    const int64_t num_sources = edges.sources.num_nodes();
    const int64_t num_candidates = std::min(most->edges, num_sources);
    const int64_t num_slots =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * num_candidates + 1)));
    const device_sample::Table candidates{candidate_ids_.grow(num_slots), mass_.grow(num_slots),
                                          static_cast<uint64_t>(num_slots - 1)};
    backend_.fill(candidates.ids, 0xFF, num_slots * sizeof(int64_t));
    backend_.fill(candidates.values, 0, num_slots * sizeof(int64_t));
    backend_.for_each(most->edges,
                      device_sample::CollectCandidates<Id>{
                          edges.indices(), num_sources, all, most->nodes, mass_shift(most->nodes),
                          candidates, candidate_slot_.grow(most->edges), damaged});
    const std::vector<LayerCandidate> list =
        this->list(edges, candidates, num_slots, num_candidates, all, most->nodes, damaged);
    std::vector<double> coefficients(list.size());
    choose_layer(list, edges.type.fanouts[hop], edges.key(), hop, kind.debias, coefficients);
    coefficients_.upload(coefficients);
    return keep(kind, edges, all, most);
  }

  const float* weights() const { return weights_.data(); }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;

  /// Of up to `most`.
  std::vector<LayerCandidate> list(const Edges& edges, const device_sample::Table& candidates,
                                   int64_t num_slots, int64_t most,
                                   const device_sample::Expanded& all, int64_t count,
                                   const int64_t* damaged) {
    const device_sample::ListCandidates items{num_slots,
                                              candidates,
                                              edges.sources.table(),
                                              number_.grow(num_slots),
                                              candidates_.grow(most),
                                              num_candidates_.grow(1)};
    sums_.clear(OrderedSum<device_sample::ListCandidates>::state_words(num_slots));
    sums_.run(items, num_slots);
    int64_t bad = 0;
    backend_.download(&bad, damaged, sizeof(bad));
    std::vector<LayerCandidate> found(read_word(backend_, items.num_candidates));
    if (bad != device_sample::kNoError) throw_damaged_edge(edges, all, count, bad);
    backend_.download(found.data(), items.list, found.size() * sizeof(LayerCandidate));
    backend_.synchronize();
    return found;
  }

  device_sample::Expanded keep(const LadiesSampling& kind, Edges& edges,
                               const device_sample::Expanded& all, HopBound* most) {
    const int64_t count = most->nodes, num_edges = most->edges;
    const device_sample::KeepEdges items{num_edges,
                                         all,
                                         count,
                                         candidate_slot_.data(),
                                         number_.data(),
                                         coefficients_.data(),
                                         kept_rank_.grow(num_edges + 1),
                                         edges.positions(num_edges),
                                         of_edge_.grow(num_edges)};
    sums_.clear(OrderedSum<device_sample::KeepEdges>::state_words(num_edges));
    sums_.run(items, num_edges);
    device_sample::Expanded kept = all;
    kept.offset = kept_offset_.grow(count + 1);
    backend_.for_each(count + 1, device_sample::CountKept{all, kept, count, items.rank});
    most->edges = read_word(backend_, items.rank + num_edges);
    const int64_t old_edges = edges.count();
    float* const weights = weights_.grow(old_edges + most->edges, old_edges) + old_edges;
    backend_.for_each(count, device_sample::WeighEdges{kept, kind.debias, items.of_edge, weights});
    return kept;
  }

  /// For an edge among all into the nodes.
  [[noreturn]] void throw_damaged_edge(const Edges& edges, const device_sample::Expanded& all,
                                       int64_t count, int64_t edge) {
    std::vector<int64_t> offset(count + 1);
    std::vector<int64_t> first(count);
    backend_.download(offset.data(), all.offset, offset.size() * sizeof(int64_t));
    backend_.download(first.data(), all.first, first.size() * sizeof(int64_t));
    backend_.synchronize();
    const int64_t i = device_sample::node_of(offset.data(), 0, count, edge);
    Id id = 0;
    backend_.download(&id, edges.indices() + first[i] + edge - offset[i], sizeof(Id));
    backend_.synchronize();
    throw_damaged(id, edges.sources.num_nodes());
  }

  Backend& backend_;
  SumsOnBackend<Backend>& sums_;
  Array<float> weights_{backend_};  // of the batch's edges
  // Of a hop.
  Array<int64_t> candidate_ids_{backend_};
  Array<int64_t> mass_{backend_};
  Array<uint32_t> candidate_slot_{backend_};
  Array<int64_t> number_{backend_};
  Array<int64_t> num_candidates_{backend_};
  Array<LayerCandidate> candidates_{backend_};
  Array<double> coefficients_{backend_};
  Array<int64_t> kept_rank_{backend_};
  Array<int64_t> kept_offset_{backend_};
  Array<double> of_edge_{backend_};
};

}  // namespace lsm
