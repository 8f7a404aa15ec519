// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Samples the edges of one type for a batch, hop by hop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/core/host_array.h"
#include "kernels/core/mapped_file.h"
#include "kernels/core/philox.h"
#include "kernels/core/prefetch.h"
#include "kernels/core/thread_pool.h"
#include "kernels/sample/hop_drawing.h"
#include "kernels/sample/hops.h"
#include "kernels/sample/left_out.h"
#include "kernels/sample/node_list.h"
#include "kernels/sample/sampler.h"

namespace lsm {

/// Working memory of the edges of one type, kept from batch to batch.
template <class Hops>
struct EdgeWorkspace {
  HostArray<InEdges> in_edges;  // of the nodes that a hop expands
  typename Hops::Workspace hops;
};

/// Edges from `sources` to the frontiers of `destinations`, which may be the same list.
template <class Id, class NodeId, class Hops>
class EdgeSampling {
 public:
  struct Ends {
    NodeList<NodeId>& sources;
    NodeList<NodeId>& destinations;
  };

  EdgeSampling(const Graph<Id>& graph, Ends ends, EdgeWorkspace<Hops>& workspace,
               BufferPool& buffers, ThreadPool& threads, const Sampling& kind,
               const BatchName& batch, EdgeIds edge_ids, const ExcludedPairs& excluded = {})
      : graph_(graph),
        sources_(ends.sources),
        destinations_(ends.destinations),
        workspace_(workspace),
        threads_(threads),
        batch_(batch),
        hops_(kind, batch, workspace.hops),
        left_out_(excluded),
        records_edge_ids_(edge_ids == EdgeIds::kRecord),
        buffers_(buffers),
        edges_(buffers),
        indptr_(buffers),
        edge_ids_(buffers) {
    indptr_.grow(1, 0);
    indptr_.data()[0] = 0;
    edges_.grow(0, 0);
    edge_ids_.grow(0, 0);
  }

  /// Draws up to `fanout` in-edges (-1: all) of each node of the frontier.
  void expand(uint32_t hop, int64_t fanout) {
    const int64_t begin = destinations_.begin();
    const int64_t end = destinations_.end();
    const int64_t old_edges = result_.num_edges;
    count_edges(begin, end, Hops::kHasLayers ? -1 : fanout, hop);
    check_mapped(graph_.indptr);  // before it is used to find edges
    if constexpr (Hops::kHasLayers) {
      const int64_t* ids = destinations_.ids();
      hops_.choose(graph_, {ids, ids + end},
                   {workspace_.in_edges.data(), workspace_.in_edges.data() + (end - begin)}, hop,
                   fanout, indptr_.data() + begin);
    }
    const int64_t new_edges = indptr_.data()[end] - old_edges;
    make_room(new_edges);
    if constexpr (Hops::kHasLayers) {
      write_layer(begin, end, new_edges);
    } else {
      draw_hop(begin, end, hop);
    }
    result_.num_expanded = end;
    result_.num_sampled_edges.push_back(new_edges);
  }

  /// Call once, after the last hop.
  SampledEdges release() {
    check_mapped(graph_.indices);
    result_.edges = edges_.release();
    result_.indptr = indptr_.release();
    if (records_edge_ids_) result_.edge_ids = edge_ids_.release();
    if constexpr (Hops::kHasLayers) {
      const std::span<const float> weights = hops_.weights();
      result_.weights = buffers_.take(weights.size_bytes());
      std::ranges::copy(weights, reinterpret_cast<float*>(result_.weights->data()));
    }
    return std::move(result_);
  }

 private:
  /// Extends indptr over nodes [begin, end) and records the place of their edges in the graph.
  void count_edges(int64_t begin, int64_t end, int64_t fanout, uint32_t hop) {
    indptr_.grow(end + 1, begin + 1);
    workspace_.in_edges.resize_discarding(end - begin);
    const uint64_t limit = fanout < 0 ? UINT64_MAX : static_cast<uint64_t>(fanout);
    // Both ends of an excluded pair are seeds, which only the first hop expands; but in a subgraph
    // of its own, a seed meets the others as neighbours.
    const bool excludes = left_out_.is_given() && (hop == 0 || destinations_.is_split());
    if (graph_.is_plain() && !destinations_.is_split() && !excludes) {
      const int64_t* ids = destinations_.ids();
      count_each<false>(
          begin, end, [&](int64_t i) { return ids[i]; },
          [&](int64_t, const InEdges& in) { return std::min<uint64_t>(in.degree, limit); });
      return;
    }
    count_each<true>(
        begin, end, [&](int64_t i) { return destinations_.node(i); },
        [&](int64_t i, InEdges& in) {
          const int64_t subgraph = destinations_.is_split() ? destinations_.subgraphs()[i] : 0;
          graph_.leave_out_later(in, subgraph);
          std::span<const uint32_t> kept_before;
          if (excludes) kept_before = left_out_.find(graph_, i, destinations_.node(i), in);
          const LeftOut left_out{kept_before.data(), static_cast<uint32_t>(kept_before.size())};
          return graph_.restrict(in, left_out, limit);
        });
  }

  template <bool kIsRestricted, class NodeOf, class CountOf>
  void count_each(int64_t begin, int64_t end, const NodeOf& node_of, const CountOf& count_of) {
    int64_t* indptr = indptr_.data();
    for (int64_t i = begin; i < end; ++i) {
      if (i + kNodesAhead < end) __builtin_prefetch(graph_.indptr + node_of(i + kNodesAhead));
      if constexpr (kIsRestricted) {
        if (i + kNodesAhead / 2 < end) graph_.prefetch_times(node_of(i + kNodesAhead / 2));
      }
      InEdges in = graph_.in_edges(node_of(i));
      const uint64_t count = count_of(i, in);
      workspace_.in_edges[i - begin] = in;
      indptr[i + 1] = indptr[i] + static_cast<int64_t>(count);
    }
  }

  /// The last hop's edges are most of a batch. Exact sizes are known before they are drawn, so they
  /// are written in place, and only the earlier hops' edges move.
  void make_room(int64_t new_edges) {
    const int64_t old_edges = result_.num_edges;
    const int64_t total = old_edges + new_edges;
    const auto old = edges_.release();
    edges_.grow(2 * total, 0);
    if (old_edges > 0) {
      const auto* from = reinterpret_cast<const int64_t*>(old->data());
      std::copy_n(from, old_edges, edges_.data());
      std::copy_n(from + old_edges, old_edges, edges_.data() + total);
    }
    if (records_edge_ids_) edge_ids_.grow(total, old_edges);
    result_.num_edges = total;
    sources_.reserve(new_edges);
  }

  void draw_hop(int64_t begin, int64_t end, uint32_t number) {
    const HopDrawing<Id> drawing(
        graph_,
        {key(), number, hops_.draws(number), destinations_.ids(), indptr_.data(), begin,
         workspace_.in_edges.data(), edges_.data(), edges_.data() + result_.num_edges},
        left_out_);
    if (threads_.num_threads() == 1) {
      draw_pipelined(drawing, begin, end);
      return;
    }
    const int64_t* indptr = indptr_.data();
    threads_.parallel_for(end - begin, kNodesPerTask, [&](int64_t from, int64_t to) {
      for_each_block(begin + from, begin + to, [&](int64_t a, int64_t b) {
        drawing.draw_block(a, b);
        load(drawing, indptr[a], indptr[b]);
      });
    });
    relabel_all(indptr[begin], indptr[end]);
  }

  uint64_t key() const {
    return batch_key(batch_.seed, batch_.epoch, batch_.iteration, batch_.rank);
  }

  void write_layer(int64_t begin, int64_t end, int64_t new_edges) {
    const int64_t first = indptr_.data()[begin];
    hops_.write(begin, new_edges, edges_.data() + first, edges_.data() + result_.num_edges + first,
                records_edge_ids_ ? edge_ids_.data() + first : nullptr);
    relabel_all(first, indptr_.data()[end]);
  }

  /// Software-pipelined in three steps, each at least a window of edges behind the one that
  /// prefetches its data: while one would wait for memory, the others compute.
  void draw_pipelined(const HopDrawing<Id>& drawing, int64_t begin, int64_t end) {
    const int64_t* indptr = indptr_.data();
    int64_t loaded = indptr[begin];
    int64_t relabelled = loaded;
    const auto load_until = [&](int64_t stop) {
      load(drawing, loaded, stop);
      prefetch_slots(loaded, stop);
      loaded = stop;
    };
    for_each_block(begin, end, [&](int64_t from, int64_t to) {
      drawing.draw_block(from, to);
      while (loaded + 2 * kWindow <= indptr[to]) {
        load_until(loaded + kWindow);
        if (relabelled + 2 * kWindow > loaded) continue;
        relabel(relabelled, relabelled + kWindow);
        relabelled += kWindow;
      }
    });
    load_until(indptr[end]);
    relabel(relabelled, indptr[end]);
  }

  /// Cuts nodes [begin, end) into blocks of about kBlockEdges edges.
  template <class Body>
  void for_each_block(int64_t begin, int64_t end, const Body& body) const {
    const int64_t* indptr = indptr_.data();
    while (begin < end) {
      int64_t stop = begin + 1;
      while (stop < end && indptr[stop + 1] - indptr[begin] <= kBlockEdges) ++stop;
      body(begin, stop);
      begin = stop;
    }
  }

  /// Replaces edge numbers by the ids of their sources in the list.
  void load(const HopDrawing<Id>& drawing, int64_t begin, int64_t end) const {
    if (left_out_.has_any()) [[unlikely]]
      left_out_.shift(begin, end, indptr_.data(), edges_.data());
    if (records_edge_ids_) [[unlikely]]
      keep_edge_ids(begin, end);
    drawing.load_sources(begin, end);
    if (destinations_.is_split()) [[unlikely]]
      move_to_subgraphs(begin, end);
  }

  /// Copies edges' numbers in the graph before their sources' ids replace them. Out of line: few
  /// batches need it, and the loop around it is hot.
  [[gnu::noinline]] void keep_edge_ids(int64_t begin, int64_t end) const {
    std::copy(edges_.data() + begin, edges_.data() + end, edge_ids_.data() + begin);
  }

  /// A source is in the subgraph of its destination.
  [[gnu::noinline]] void move_to_subgraphs(int64_t begin, int64_t end) const {
    const int64_t* const subgraphs = destinations_.subgraphs();
    const int64_t* const destinations = edges_.data() + result_.num_edges;
    for (int64_t e = begin; e < end; ++e) {
      edges_.data()[e] += subgraphs[destinations[e]] * sources_.num_nodes();
    }
  }

  std::span<const int64_t> sources(int64_t begin, int64_t end) const {
    return {edges_.data() + begin, edges_.data() + end};
  }

  LSM_ONLY_PREFETCHES void prefetch_slots(int64_t begin, int64_t end) const {
    sources_.prefetch(sources(begin, end));
  }

  /// Replaces source ids by local indices.
  void relabel(int64_t begin, int64_t end) {
    sources_.relabel(sources(begin, end), edges_.data() + begin);
  }

  void relabel_all(int64_t begin, int64_t end) {
    prefetch_slots(begin, std::min(begin + kWindow, end));
    for (int64_t e = begin; e < end; e += kWindow) {
      const int64_t stop = std::min(e + kWindow, end);
      prefetch_slots(stop, std::min(stop + kWindow, end));
      relabel(e, stop);
    }
  }

  // Nodes between the prefetch and the use of an indptr entry.
  static constexpr int64_t kNodesAhead = 32;
  // Enough edges at a time to hide the latency of memory, few enough that prefetched data stays in
  // the nearest caches.
  static constexpr int64_t kBlockEdges = 256;
  static constexpr int64_t kWindow = 128;
  static constexpr int64_t kNodesPerTask = 2048;

  const Graph<Id>& graph_;
  NodeList<NodeId>& sources_;
  NodeList<NodeId>& destinations_;
  EdgeWorkspace<Hops>& workspace_;
  ThreadPool& threads_;
  const BatchName batch_;
  Hops hops_;
  LeftOutEdges<Id> left_out_;
  const bool records_edge_ids_;
  BufferPool& buffers_;
  OutputArray edges_;
  OutputArray indptr_;
  OutputArray edge_ids_;
  SampledEdges result_;
};

}  // namespace lsm
