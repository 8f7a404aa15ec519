// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The edges of one type that a batch has, on a Backend; EdgeSampling is that of the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/core/philox.h"
#include "kernels/sample/choice_functors.h"
#include "kernels/sample/gpu_sampler.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/nodes_on_backend.h"
#include "kernels/sample/sampler_functors.h"
#include "kernels/sample/sums_on_backend.h"
#include "kernels/sample/typed_edges.h"

namespace lsm {

/// At most: nodes that a hop expands, and edges into them.
struct HopBound {
  int64_t nodes, edges;
};

[[noreturn]] inline void throw_damaged(int64_t id, int64_t num_sources) {
  throw ArgumentError(concat("indices: expected ids in [0, ", num_sources, "), got ", id,
                             "; the topology is damaged: check it with `lsm data verify`"));
}

template <class Id, class Backend>
class EdgesOnBackend {
 public:
  using Nodes = NodesOnBackend<Backend>;
  using SumOfCounts = OrderedSum<device_sample::CountEdges<Id, true>>;
  using SumOfNew = OrderedSum<device_sample::NumberNodes>;

  EdgesOnBackend(Backend& backend, SumsOnBackend<Backend>& sums, const EdgeType<Id>& type,
                 Nodes& sources, Nodes& destinations)
      : type(type),
        sources(sources),
        destinations(destinations),
        backend_(backend),
        sums_(sums),
        graph_(type.graph) {}

  /// Begins a batch, in which the edges of this type are drawn under `name`. `seed_times`: by
  /// subgraph, in memory of the Backend, if edges have times.
  void begin(const BatchName& name, EdgeIds edge_ids, const int64_t* seed_times) {
    name_ = name;
    graph_.times.of_seeds = seed_times;
    records_edge_ids_ = edge_ids == EdgeIds::kRecord;
    count_ = 0;
    has_indptr_ = false;
    num_sampled_.clear();
  }

  /// Makes room for hops that expand up to `most.nodes` nodes each, and have up to `most.edges`
  /// edges together; `max_destinations`: all of the batch.
  void make_room(const HopBound& most, int64_t max_destinations) {
    first_.grow(most.nodes);
    degree_.grow(most.nodes);
    offset_.grow(most.nodes + 1);
    const int64_t num_edges = count_ + most.edges;
    sources_.grow(num_edges, count_);
    destinations_.grow(num_edges, count_);
    slot_.grow(num_edges);
    if (records_edge_ids_) edge_ids_.grow(num_edges, count_);
    indptr_.grow(max_destinations + 1, has_indptr_ ? destinations.num_expanded() : 0);
    has_indptr_ = true;
    positions_.grow(most.edges);
  }

  /// The frontier, and the numbers of edges before its hop and, at `after`, after it.
  device_sample::Expanded expanded(const SizesOnBackend<Backend>& sizes, size_t after) const {
    const auto& at = destinations.places;
    return {destinations.batch(),
            {sizes.at(at.begin), sizes.at(at.end), sizes.at(place), sizes.at(after)},
            first_.data(),
            degree_.data(),
            offset_.data()};
  }

  /// Counts up to `fanout` edges (-1: all) of each node.
  void count(const device_sample::Expanded& nodes, int64_t most, int64_t fanout,
             const device_sample::DrawNodes& draw = {}) {
    const uint64_t limit = fanout < 0 ? UINT64_MAX : static_cast<uint64_t>(fanout);
    if (graph_.is_plain() && nodes.batch.subgraph == nullptr) {
      sums_.run(device_sample::CountEdges<Id, true>{graph_, limit, nodes, draw}, most);
    } else {
      sums_.run(device_sample::CountEdges<Id, false>{graph_, limit, nodes, draw}, most);
    }
  }

  /// Counts edges and draws them.
  void count_and_draw(const Sampling& kind, const device_sample::Expanded& nodes,
                      const HopBound& most, uint32_t hop) {
    if (!draws_of(kind, name_, hop) && graph_.weights == nullptr) {
      return count(nodes, most.nodes, type.fanouts[hop], draw_nodes(nodes, hop));
    }
    count(nodes, most.nodes, type.fanouts[hop]);
    draw(kind, nodes, most, hop);
  }

  /// Draws edges that are counted.
  void draw(const Sampling& kind, const device_sample::Expanded& nodes, const HopBound& most,
            uint32_t hop) {
    if (graph_.weights != nullptr) {
      const device_sample::ArrivalOrder order{graph_.weights, key(), hop};
      return choose(order, nodes, most, &arrivals_);
    }
    const std::optional<SourceDraws> draws = draws_of(kind, name_, hop);
    if (!draws) return backend_.for_each(most.nodes, draw_nodes(nodes, hop));
    choose(device_sample::DrawOrder<Id>{indices(), *draws}, nodes, most, &heaps_);
  }

  /// Loads the drawn edges, and numbers the nodes that they name first.
  void load(const device_sample::Expanded& nodes, const HopBound& most, int64_t* damaged,
            SizesOnBackend<Backend>& sizes) {
    if (nodes.batch.subgraph == nullptr) {
      load_sources<device_sample::LoadSources<Id, false>>(nodes, most, damaged);
    } else {
      load_sources<device_sample::LoadSources<Id, true>>(nodes, most, damaged);
    }
    const size_t old_nodes = sources.places.found;
    sources.places.found = sizes.add();
    sums_.run(device_sample::NumberNodes{nodes, edges(), sources.batch(), sizes.at(old_nodes),
                                         sizes.at(sources.places.found)},
              most.edges);
  }

  /// The host learns that there are `count` edges after a hop.
  void end_hop(int64_t count) {
    num_sampled_.push_back(count - count_);
    count_ = count;
  }
  /// Gives the sources of edges from `old_count` on the numbers of their nodes.
  void relabel(int64_t old_count) {
    backend_.for_each(count_ - old_count, device_sample::Relabel{edges(), old_count});
  }

  int64_t num_bounds() const { return destinations.num_expanded() + 1; }
  /// To indptr [num_bounds()], and sources and destinations [count()].
  void copy_to(int64_t* indptr, int64_t* sources, int64_t* destinations) {
    if (!has_indptr_) backend_.fill(indptr_.grow(1), 0, sizeof(int64_t));
    backend_.copy(indptr, indptr_.data(), num_bounds() * sizeof(int64_t));
    backend_.copy(sources, sources_.data(), count_ * sizeof(int64_t));
    backend_.copy(destinations, destinations_.data(), count_ * sizeof(int64_t));
  }
  void copy_edge_ids(int64_t* out) {
    backend_.copy(out, edge_ids_.data(), count_ * sizeof(int64_t));
  }

  const Id* indices() const { return graph_.indices; }
  uint64_t key() const { return batch_key(name_.seed, name_.epoch, name_.iteration, name_.rank); }
  uint32_t* positions(int64_t most) { return positions_.grow(most); }
  /// An edge's source before relabel().
  const int64_t* source_of(int64_t edge) const { return sources_.data() + edge; }
  int64_t count() const { return count_; }
  const std::vector<int64_t>& num_sampled() const { return num_sampled_; }

  const EdgeType<Id> type;
  Nodes& sources;
  Nodes& destinations;
  size_t place = 0;  // of the number of edges in SizesOnBackend

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;

  template <class Order>
  void choose(const Order& order, const device_sample::Expanded& nodes, const HopBound& most,
              Array<typename Order::Entry>* heaps) {
    backend_.for_each_warp(most.nodes,
                           device_sample::ChooseFirst<Order>{nodes, order, heaps->grow(most.edges),
                                                             positions_.data()});
  }

  template <class Load>
  void load_sources(const device_sample::Expanded& nodes, const HopBound& most, int64_t* damaged) {
    backend_.for_each_warp(Load::num_warps(most.nodes, most.edges),
                           Load{indices(), sources.num_nodes(), nodes, positions_.data(), edges(),
                                damaged, indptr_.data()});
  }

  device_sample::DrawNodes draw_nodes(const device_sample::Expanded& nodes, uint32_t hop) const {
    return {nodes, key(), hop, positions_.data()};
  }

  device_sample::Edges edges() const {
    return {sources.table(), sources_.data(), destinations_.data(), slot_.data(),
            records_edge_ids_ ? edge_ids_.data() : nullptr};
  }

  Backend& backend_;
  SumsOnBackend<Backend>& sums_;
  Graph<Id> graph_;
  BatchName name_;
  bool records_edge_ids_ = false;
  // As the host knows them.
  int64_t count_ = 0;
  bool has_indptr_ = false;
  std::vector<int64_t> num_sampled_;
  // Of the batch.
  Array<int64_t> sources_{backend_};
  Array<int64_t> destinations_{backend_};
  Array<int64_t> indptr_{backend_};
  Array<int64_t> edge_ids_{backend_};
  Array<uint32_t> slot_{backend_};
  // Of a hop.
  Array<int64_t> first_{backend_};
  Array<uint32_t> degree_{backend_};
  Array<int64_t> offset_{backend_};
  Array<uint32_t> positions_{backend_};
  Array<uint64_t> heaps_{backend_};
  Array<device_sample::Arrival> arrivals_{backend_};
};

}  // namespace lsm
