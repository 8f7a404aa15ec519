// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuSampler on a Backend. Hops whose fanouts bound their memory run one after the other: kernels
// leave the sizes that the next ones need in GPU memory, and the host reads all of them at the end.
// A hop without a bound takes two waits, one for the numbers of its edges.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/sample/edges_on_backend.h"
#include "kernels/sample/gpu_sampler.h"
#include "kernels/sample/ladies_on_backend.h"
#include "kernels/sample/nodes_on_backend.h"
#include "kernels/sample/sampler_functors.h"
#include "kernels/sample/sums_on_backend.h"

namespace lsm {

template <class Id, class Backend>
class SamplerOnBackend final : public GpuSampler {
 public:
  SamplerOnBackend(std::unique_ptr<Backend> backend, const GpuGraph& graph,
                   const std::vector<EdgeType<Id>>& types)
      : backend_(std::move(backend)),
        num_hops_(types.front().fanouts.size()),
        sampling_(graph.sampling),
        disjoint_(graph.disjoint),
        has_times_(std::ranges::any_of(
            types, [](const auto& type) { return type.graph.times.are_given(); })) {
    backend_->enter();
    for (const int64_t count : graph.num_nodes) {
      nodes_.emplace_back(*backend_, count, disjoint_);
    }
    for (const EdgeType<Id>& type : types) {
      edges_.emplace_back(*backend_, sums_, type, nodes_[type.source], nodes_[type.destination]);
    }
    errors_.grow(num_errors());
  }
  ~SamplerOnBackend() override { backend_->drain(); }

  SampleSizes sample(const TypedSeeds& seeds, const BatchName& batch, EdgeIds edge_ids) override {
    backend_->enter();
    begin(seeds, batch, edge_ids);
    size_t hop = 0;
    do {
      const std::vector<size_t> ends = expand(&hop);
      finish(ends, seeds.ids);
    } while (hop < num_hops_);
    int64_t offset = 0;
    for (Nodes& nodes : nodes_) {
      nodes.move_ids(offset);
      offset += nodes.num_nodes();
    }
    return sizes();
  }

  void copy_to(const SampleOutput& output) override {
    backend_->enter();
    int64_t place_of_nodes = 0;
    for (const Nodes& nodes : nodes_) {
      const size_t bytes = nodes.size() * sizeof(int64_t);
      backend_->copy(output.n_id + place_of_nodes, nodes.batch().n_id, bytes);
      if (disjoint_) {
        backend_->copy(output.subgraph + place_of_nodes, nodes.batch().subgraph, bytes);
      }
      place_of_nodes += nodes.size();
    }
    int64_t num_edges = 0;
    for (const Edges& edges : edges_) num_edges += edges.count();
    int64_t *place = output.edges, *indptr = output.indptr;
    for (Edges& edges : edges_) {
      edges.copy_to(indptr, place, place + num_edges);
      place += edges.count();
      indptr += edges.num_bounds();
    }
    if (is_ladies()) {
      backend_->copy(output.weights, ladies_.weights(), num_edges * sizeof(float));
    }
    backend_->synchronize();
  }

  void copy_edge_ids(int64_t* out) override {
    backend_->enter();
    for (Edges& edges : edges_) {
      edges.copy_edge_ids(out);
      out += edges.count();
    }
    backend_->synchronize();
  }

  intptr_t stream() const override { return backend_->stream_number(); }

 private:
  using Nodes = NodesOnBackend<Backend>;
  using Edges = EdgesOnBackend<Id, Backend>;
  using HopBounds = std::vector<HopBound>;  // by type of edges
  static constexpr int64_t kMostEdges = int64_t{1} << 20;

  bool is_ladies() const { return std::holds_alternative<LadiesSampling>(sampling_); }

  /// A repeated seed, and a damaged edge of each type.
  int64_t num_errors() const { return 1 + static_cast<int64_t>(edges_.size()); }
  int64_t* damaged(size_t type) const { return errors_.data() + 1 + type; }

  void check(const TypedSeeds& seeds) const {
    check_argument(seeds.type >= 0 && seeds.type < std::ssize(nodes_),
                   "seeds: expected a type in [0, ", nodes_.size(), "), got ", seeds.type);
    check_argument(!has_times_ || seeds.times.size() == seeds.ids.size(),
                   "seed times: expected one for each of ", seeds.ids.size(), " seeds, got ",
                   seeds.times.size());
    const int64_t num_nodes = nodes_[seeds.type].num_nodes();
    for (size_t i = 0; i < seeds.ids.size(); ++i) {
      check_argument(seeds.ids[i] >= 0 && seeds.ids[i] < num_nodes, "seeds: expected ids in [0, ",
                     num_nodes, "), got ", seeds.ids[i], " at position ", i);
    }
  }

  void begin(const TypedSeeds& seeds, const BatchName& batch, EdgeIds edge_ids) {
    check(seeds);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const bool has_seeds = i == static_cast<size_t>(seeds.type);
      nodes_[i].begin(has_seeds ? seeds.ids : std::span<const int64_t>(), std::ssize(seeds.ids));
    }
    const int64_t* const times = has_times_ ? seed_times_.upload(seeds.times) : nullptr;
    for (size_t i = 0; i < edges_.size(); ++i) {
      const uint64_t source = static_cast<uint64_t>(edges_[i].type.source);
      edges_[i].begin(name_of_type(batch, sampling_, i, source), edge_ids, times);
    }
    backend_->fill(errors_.data(), 0x7F, num_errors() * sizeof(int64_t));  // kNoError
  }

  /// Of the hops from `hop` on until the first without one. It is in their fanouts: the memory for
  /// as many edges as there may be must not cost more than to wait.
  std::vector<HopBounds> bounds_from(size_t hop) const {
    std::vector<HopBounds> bounds;
    std::vector<int64_t> frontiers;
    for (const Nodes& nodes : nodes_) frontiers.push_back(nodes.num_frontier());
    for (int64_t left = kMostEdges; hop < num_hops_ && !is_ladies(); ++hop) {
      HopBounds next;
      std::vector<int64_t> found(nodes_.size());
      for (const Edges& edges : edges_) {
        const int64_t nodes = frontiers[edges.type.destination];
        const int64_t fanout = edges.type.fanouts[hop];
        if (nodes > 0 && (fanout < 0 || (fanout > 0 && nodes > left / fanout))) return bounds;
        next.push_back({nodes, nodes > 0 ? nodes * fanout : 0});
        left -= next.back().edges;
        found[edges.type.source] += next.back().edges;
      }
      bounds.push_back(std::move(next));
      for (size_t i = 0; i < nodes_.size(); ++i) {
        frontiers[i] = std::min(found[i], nodes_[i].limit());
      }
    }
    return bounds;
  }

  /// Queues the hops from `hop` on that need no sizes on the host between them; at least one, if
  /// there is one. Moves `hop` behind them. Returns the places of their sizes (end_queued_hop()).
  std::vector<size_t> expand(size_t* hop) {
    const std::vector<HopBounds> bounds = bounds_from(*hop);
    begin_sizes(std::max<size_t>(bounds.size(), 1));
    std::vector<size_t> ends;
    if (bounds.empty() && *hop < num_hops_) {
      expand_counted(static_cast<uint32_t>((*hop)++));
      end_queued_hop(&ends);
      return ends;
    }
    make_room(bounds);
    int64_t num_words = 0;
    for (const HopBounds& hop_bounds : bounds) {
      for (const HopBound& most : hop_bounds) {
        num_words += Edges::SumOfCounts::state_words(most.nodes);
        num_words += Edges::SumOfNew::state_words(most.edges);
      }
    }
    sums_.clear(num_words);
    for (const HopBounds& hop_bounds : bounds) {
      expand_bounded(static_cast<uint32_t>((*hop)++), hop_bounds);
      end_queued_hop(&ends);
    }
    return ends;
  }

  /// Leaves the sizes that the host knows in memory of the Backend.
  void begin_sizes(size_t num_hops) {
    std::vector<int64_t> known;
    for (Nodes& nodes : nodes_) {
      nodes.places = {known.size(), known.size() + 1, known.size() + 1};
      known.push_back(nodes.num_expanded());
      known.push_back(nodes.size());
    }
    for (Edges& edges : edges_) {
      edges.place = known.size();
      known.push_back(edges.count());
    }
    sizes_on_backend_.begin(known, 2 * edges_.size() * num_hops);
  }

  /// Makes room for hops with these bounds, and enters the nodes there are.
  void make_room(const std::vector<HopBounds>& hops) {
    std::vector<int64_t> num_new(nodes_.size());
    HopBounds most(edges_.size());
    for (const HopBounds& bounds : hops) {
      for (size_t i = 0; i < edges_.size(); ++i) {
        most[i] = {std::max(most[i].nodes, bounds[i].nodes), most[i].edges + bounds[i].edges};
        num_new[edges_[i].type.source] += bounds[i].edges;
      }
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      num_new[i] = nodes_[i].reserve(num_new[i], errors_.data());
    }
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (most[i].nodes == 0) continue;  // as in all of the hops
      edges_[i].make_room(most[i], num_new[edges_[i].type.destination]);
    }
  }

  void expand_bounded(uint32_t hop, const HopBounds& bounds) {
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (bounds[i].nodes == 0) continue;
      const device_sample::Expanded nodes = expanded(i);
      edges_[i].count_and_draw(sampling_, nodes, bounds[i], hop);
      edges_[i].load(nodes, bounds[i], damaged(i), sizes_on_backend_);
    }
  }

  /// A hop whose edges are counted before there is memory for them.
  void expand_counted(uint32_t hop) {
    HopBounds most;
    int64_t num_words = 0;
    for (const Edges& edges : edges_) {
      most.push_back({edges.destinations.num_frontier(), 0});
      num_words += Edges::SumOfCounts::state_words(most.back().nodes);
    }
    make_room({most});
    sums_.clear(num_words);
    std::vector<device_sample::Expanded> nodes(edges_.size());
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (most[i].nodes == 0) continue;
      nodes[i] = expanded(i);
      edges_[i].count(nodes[i], most[i].nodes, is_ladies() ? -1 : edges_[i].type.fanouts[hop]);
    }
    read_counts(&most);
    if (is_ladies() && most[0].nodes > 0) {
      nodes[0] = ladies_.choose(std::get<LadiesSampling>(sampling_), edges_[0], nodes[0], &most[0],
                                hop, damaged(0));
    }
    make_room({most});
    num_words = 0;
    for (const HopBound& bound : most) num_words += Edges::SumOfNew::state_words(bound.edges);
    sums_.clear(num_words);
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (most[i].nodes == 0) continue;
      nodes[i].batch = edges_[i].destinations.batch();  // which may have grown
      if (!is_ladies()) edges_[i].draw(sampling_, nodes[i], most[i], hop);
      edges_[i].load(nodes[i], most[i], damaged(i), sizes_on_backend_);
    }
  }

  /// Completes `most` by the numbers of edges that kernels have counted.
  void read_counts(HopBounds* most) {
    std::vector<int64_t> sizes;
    sizes_on_backend_.download(&sizes);
    backend_->synchronize();
    for (size_t i = 0; i < edges_.size(); ++i) {
      (*most)[i].edges = sizes[edges_[i].place] - edges_[i].count();
    }
  }

  /// The frontier of a hop's edges of a type, whose number they will change.
  device_sample::Expanded expanded(size_t type) {
    Edges& edges = edges_[type];
    const size_t after = sizes_on_backend_.add();
    const device_sample::Expanded nodes = edges.expanded(sizes_on_backend_, after);
    edges.place = after;
    return nodes;
  }

  /// Appends the places of the sizes after the hop: of each type of nodes, then of edges.
  void end_queued_hop(std::vector<size_t>* ends) {
    for (Nodes& nodes : nodes_) {
      nodes.end_queued_hop();
      ends->push_back(nodes.places.end);
    }
    for (const Edges& edges : edges_) ends->push_back(edges.place);
  }

  static void check_seeds(std::span<const int64_t> seeds, int64_t repeated) {
    check_argument(repeated == device_sample::kNoError, "seeds: expected distinct ids, got ",
                   repeated == device_sample::kNoError ? 0 : seeds[repeated], " again at position ",
                   repeated);
  }

  /// Reads the sizes of the queued hops, which lie at `ends`, and throws their errors.
  void finish(const std::vector<size_t>& ends, std::span<const int64_t> seeds) {
    std::vector<int64_t> sizes, bad(num_errors());
    sizes_on_backend_.download(&sizes);
    backend_->download(bad.data(), errors_.data(), bad.size() * sizeof(int64_t));
    backend_->synchronize();
    check_seeds(seeds, bad[0]);
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (bad[1 + i] == device_sample::kNoError) continue;
      throw_damaged(read_word(*backend_, edges_[i].source_of(bad[1 + i])),
                    edges_[i].sources.num_nodes());
    }
    std::vector<int64_t> old_counts;
    for (const Edges& edges : edges_) old_counts.push_back(edges.count());
    for (size_t next = 0; next < ends.size();) {
      for (Nodes& nodes : nodes_) nodes.end_hop(sizes[ends[next++]]);
      for (Edges& edges : edges_) edges.end_hop(sizes[ends[next++]]);
    }
    for (size_t i = 0; i < edges_.size(); ++i) edges_[i].relabel(old_counts[i]);
  }

  SampleSizes sizes() const {
    SampleSizes result;
    for (const Nodes& nodes : nodes_) {
      result.num_sampled_nodes.push_back(nodes.num_sampled());
      result.num_nodes += nodes.size();
    }
    for (const Edges& edges : edges_) {
      result.num_sampled_edges.push_back(edges.num_sampled());
      result.num_edges += edges.count();
      result.num_bounds += edges.num_bounds();
    }
    return result;
  }

  const std::unique_ptr<Backend> backend_;  // outlives the arrays
  const size_t num_hops_;
  const Sampling sampling_;
  const bool disjoint_;
  const bool has_times_;
  SumsOnBackend<Backend> sums_{*backend_};
  SizesOnBackend<Backend> sizes_on_backend_{*backend_};
  BackendArray<int64_t, Backend> errors_{*backend_};
  BackendArray<int64_t, Backend> seed_times_{*backend_};
  // By type; a deque, because they stay where they are.
  std::deque<Nodes> nodes_;
  std::deque<Edges> edges_;
  LadiesOnBackend<Id, Backend> ladies_{*backend_, sums_};
};

template <class Backend>
std::unique_ptr<GpuSampler> make_sampler_on_backend(std::unique_ptr<Backend> backend,
                                                    const GpuGraph& graph) {
  return std::visit(
      [&]<class Id>(const std::vector<EdgeType<Id>>& types) -> std::unique_ptr<GpuSampler> {
        return std::make_unique<SamplerOnBackend<Id, Backend>>(std::move(backend), graph, types);
      },
      graph.edges);
}

}  // namespace lsm
