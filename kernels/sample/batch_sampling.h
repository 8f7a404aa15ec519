// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Samples one batch. Included by sampler.cpp only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/core/check.h"
#include "kernels/core/host_array.h"
#include "kernels/core/mapped_file.h"
#include "kernels/core/philox.h"
#include "kernels/core/prefetch.h"
#include "kernels/core/thread_pool.h"
#include "kernels/sample/hop_drawing.h"
#include "kernels/sample/hop_sampler.h"
#include "kernels/sample/sampler.h"
#include "kernels/sample/unique.h"

namespace lsm {

/// A pooled int64 array that keeps its contents when it grows.
class OutputArray {
 public:
  explicit OutputArray(BufferPool& pool) : pool_(pool) {}

  void grow(int64_t size, int64_t used) {
    auto larger = pool_.take(static_cast<size_t>(size) * sizeof(int64_t));
    if (used > 0) std::memcpy(larger->data(), buffer_->data(), used * sizeof(int64_t));
    buffer_ = std::move(larger);
  }
  int64_t* data() const { return reinterpret_cast<int64_t*>(buffer_->data()); }
  std::shared_ptr<HostBuffer> release() { return std::move(buffer_); }

 private:
  BufferPool& pool_;
  std::shared_ptr<HostBuffer> buffer_;
};

/// Working memory of a batch, kept from batch to batch.
template <class Id, class Kind>
struct Workspace {
  IdTable<Id> table;
  HostArray<InEdges> in_edges;  // of the nodes that a hop expands
  HopWorkspace<Id, Kind> hops;
};

/// Samples one batch: run() once.
template <class Id, class Kind>
class BatchSampling {
 public:
  BatchSampling(const Graph<Id>& graph, Workspace<Id, Kind>& workspace, BufferPool& buffers,
                ThreadPool& threads, const Kind& kind, const BatchName& batch, EdgeIds edge_ids)
      : graph_(graph),
        workspace_(workspace),
        threads_(threads),
        batch_(batch),
        hops_(kind, batch, workspace.hops),
        records_edge_ids_(edge_ids == EdgeIds::kRecord),
        buffers_(buffers),
        n_id_(buffers),
        edges_(buffers),
        indptr_(buffers),
        edge_ids_(buffers) {}

  SampledSubgraph run(std::span<const int64_t> seeds, const std::vector<int64_t>& fanouts) {
    add_seeds(seeds);
    for (size_t hop = 0; hop < fanouts.size(); ++hop) {
      expand(static_cast<uint32_t>(hop), fanouts[hop]);
    }
    check_mapped(graph_.indices);
    result_.num_nodes = workspace_.table.size();
    result_.n_id = n_id_.release();
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
  using Hops = HopSampler<Id, Kind>;

  void add_seeds(std::span<const int64_t> seeds) {
    const int64_t count = static_cast<int64_t>(seeds.size());
    IdTable<Id>& table = workspace_.table;
    table.reset(graph_.num_nodes);
    n_id_.grow(count + 1, 0);
    table.reserve(count, n_id_.data());
    for (int64_t i = 0; i < count; ++i) {
      check_argument(seeds[i] >= 0 && seeds[i] < graph_.num_nodes, "seeds: expected ids in [0, ",
                     graph_.num_nodes, "), got ", seeds[i], " at position ", i);
      const int32_t local = table.insert(static_cast<Id>(seeds[i]), n_id_.data());
      check_argument(local == i, "seeds: expected distinct ids, got ", seeds[i], " at positions ",
                     local, " and ", i);
    }
    result_.num_sampled_nodes.push_back(count);
    indptr_.grow(1, 0);
    indptr_.data()[0] = 0;
    edges_.grow(0, 0);
    edge_ids_.grow(0, 0);
  }

  void expand(uint32_t hop, int64_t fanout) {
    const int64_t begin = result_.num_expanded;
    const int64_t end = workspace_.table.size();
    const int64_t old_edges = result_.num_edges;
    count_edges(begin, end, Hops::kHasLayers ? -1 : fanout);
    check_mapped(graph_.indptr);  // before it is used to find edges
    if constexpr (Hops::kHasLayers) {
      hops_.choose(graph_, {n_id_.data(), n_id_.data() + end},
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
    result_.num_sampled_nodes.push_back(workspace_.table.size() - end);
  }

  /// Extends indptr over nodes [begin, end) and records the place of their edges in the graph.
  void count_edges(int64_t begin, int64_t end, int64_t fanout) {
    indptr_.grow(end + 1, begin + 1);
    workspace_.in_edges.resize_discarding(end - begin);
    const int64_t* n_id = n_id_.data();
    int64_t* indptr = indptr_.data();
    const uint64_t limit = fanout < 0 ? UINT64_MAX : static_cast<uint64_t>(fanout);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kNodesAhead < end) __builtin_prefetch(graph_.indptr + n_id[i + kNodesAhead]);
      const int64_t first = graph_.indptr[n_id[i]];
      const uint64_t degree = static_cast<uint64_t>(graph_.indptr[n_id[i] + 1] - first);
      workspace_.in_edges[i - begin] = {first, static_cast<uint32_t>(degree)};
      indptr[i + 1] = indptr[i] + static_cast<int64_t>(std::min(degree, limit));
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
    const int64_t nodes = workspace_.table.size();
    const int64_t max_nodes = std::min(nodes + new_edges, graph_.num_nodes);
    n_id_.grow(max_nodes + 1, nodes);
    workspace_.table.reserve(max_nodes, n_id_.data());
  }

  void draw_hop(int64_t begin, int64_t end, uint32_t number) {
    const HopDrawing<Id> drawing(
        graph_, {key(), number, hops_.draws(number), n_id_.data(), indptr_.data(), begin,
                 workspace_.in_edges.data(), edges_.data(), edges_.data() + result_.num_edges});
    if (threads_.num_threads() == 1) {
      draw_pipelined(drawing, begin, end);
      return;
    }
    const int64_t* indptr = indptr_.data();
    threads_.parallel_for(end - begin, kNodesPerTask, [&](int64_t from, int64_t to) {
      for_each_block(begin + from, begin + to, [&](int64_t a, int64_t b) {
        drawing.draw_block(a, b);
        if (records_edge_ids_) [[unlikely]]
          keep_edge_ids(indptr[a], indptr[b]);
        drawing.load_sources(indptr[a], indptr[b]);
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
    const auto load = [&](int64_t stop) {
      if (records_edge_ids_) [[unlikely]]
        keep_edge_ids(loaded, stop);
      drawing.load_sources(loaded, stop);
      prefetch_slots(loaded, stop);
      loaded = stop;
    };
    for_each_block(begin, end, [&](int64_t from, int64_t to) {
      drawing.draw_block(from, to);
      while (loaded + 2 * kWindow <= indptr[to]) {
        load(loaded + kWindow);
        if (relabelled + 2 * kWindow > loaded) continue;
        relabel(relabelled, relabelled + kWindow);
        relabelled += kWindow;
      }
    });
    load(indptr[end]);
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

  /// Copies edges' numbers in the graph before their sources' ids replace them. Out of line: few
  /// batches need it, and the loop around it is hot.
  [[gnu::noinline]] void keep_edge_ids(int64_t begin, int64_t end) const {
    std::copy(edges_.data() + begin, edges_.data() + end, edge_ids_.data() + begin);
  }

  std::span<const int64_t> sources(int64_t begin, int64_t end) const {
    return {edges_.data() + begin, edges_.data() + end};
  }

  LSM_ONLY_PREFETCHES void prefetch_slots(int64_t begin, int64_t end) const {
    workspace_.table.prefetch(sources(begin, end));
  }

  /// Replaces source ids by local indices.
  void relabel(int64_t begin, int64_t end) {
    workspace_.table.relabel(sources(begin, end), edges_.data() + begin, n_id_.data());
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
  Workspace<Id, Kind>& workspace_;
  ThreadPool& threads_;
  const BatchName& batch_;
  Hops hops_;
  const bool records_edge_ids_;
  BufferPool& buffers_;
  OutputArray n_id_;
  OutputArray edges_;
  OutputArray indptr_;
  OutputArray edge_ids_;
  SampledSubgraph result_;
};

}  // namespace lsm
