// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The work of a thread for one node or one edge of a batch. Functors over raw memory. Nodes are
// numbered in the order in which the edges first name them, so a hash table keeps, for each id, the
// lowest edge: whichever thread comes first.
#pragma once

#include <cstdint>

#include "kernels/core/atomics.h"
#include "kernels/core/hash.h"
#include "kernels/core/macros.h"
#include "kernels/core/philox.h"
#include "kernels/sample/draw.h"
#include "kernels/sample/graph.h"

namespace lsm::device_sample {

/// Local indices are below, and names of edges of the current hop from here on.
inline constexpr int64_t kFirstEdge = int64_t{1} << 40;
inline constexpr int64_t kNoError = 0x7F7F7F7F7F7F7F7F;  // a fill

/// From ids to the edges and places that are known of them, at most half full. Not owned.
struct Table {
  int64_t* ids;     // [mask + 1] -1: empty
  int64_t* values;  // [mask + 1] a local index, or kFirstEdge + the first edge that names it
  uint64_t mask;

  /// The slot of `id`, which may be new.
  LSM_HOST_DEVICE uint32_t enter(int64_t id) const {
    uint64_t slot = mix64(static_cast<uint64_t>(id)) & mask;
    for (;;) {
      const int64_t held = atomic_compare_exchange(ids + slot, int64_t{-1}, id);
      if (held == -1 || held == id) return static_cast<uint32_t>(slot);
      slot = (slot + 1) & mask;
    }
  }

  /// True if `id` was entered, by an earlier kernel.
  LSM_HOST_DEVICE bool contains(int64_t id) const {
    uint64_t slot = mix64(static_cast<uint64_t>(id)) & mask;
    while (ids[slot] != -1 && ids[slot] != id) slot = (slot + 1) & mask;
    return ids[slot] == id;
  }
};

/// Enters nodes by number. Of equal ids the lowest number stays, and the lowest of the others is
/// `repeated`.
struct EnterNodes {
  Table table;
  const int64_t* n_id;
  int64_t* repeated;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t held = atomic_min(table.values + table.enter(n_id[i]), i);
    if (held < kFirstEdge) atomic_min(repeated, held < i ? i : held);
  }
};

/// Where a batch's numbers of nodes and edges of one type are, which kernels write.
struct HopSizes {
  const int64_t* begin;      // nodes before those that the hop expands
  const int64_t* end;        // and with them
  const int64_t* old_edges;  // before the hop
  int64_t* edges;            // and with its edges
};

/// The nodes of one type that a batch has. With several subgraphs a node is there once for each, by
/// the id `subgraph * num_nodes + node`. Not owned.
struct BatchNodes {
  int64_t* n_id;
  int64_t* subgraph;  // by place in n_id; null: one has all
  int64_t num_nodes;  // of the graph

  LSM_HOST_DEVICE int64_t subgraph_of(int64_t local) const {
    return subgraph != nullptr ? subgraph[local] : 0;
  }
  LSM_HOST_DEVICE int64_t node(int64_t local) const {
    return n_id[local] - subgraph_of(local) * num_nodes;
  }
};

/// The nodes that a hop expands: those that the hop before has found. The host knows how many there
/// may be at most, and kernels find out how many there are.
struct Expanded {
  BatchNodes batch;
  HopSizes sizes;
  int64_t* first;    // [count()] of its in-edges in the graph
  uint32_t* degree;  // [count()]
  int64_t* offset;   // [count() + 1] of its drawn edges in the hop

  LSM_HOST_DEVICE int64_t begin() const { return *sizes.begin; }
  LSM_HOST_DEVICE int64_t count() const { return *sizes.end - *sizes.begin; }
  LSM_HOST_DEVICE int64_t first_edge() const { return *sizes.old_edges; }  // in the batch
  LSM_HOST_DEVICE int64_t num_edges() const { return *sizes.edges - *sizes.old_edges; }
  LSM_HOST_DEVICE int64_t num_drawn(int64_t i) const { return offset[i + 1] - offset[i]; }
};

/// The last of nodes [low, high) whose edges begin at `e` or before. Precondition: those of `high`
/// begin later.
LSM_HOST_DEVICE inline int64_t node_of(const int64_t* offset, int64_t low, int64_t high,
                                       int64_t e) {
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (offset[middle] <= e) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The same for one edge of a warp: each step leaves one of kLanes + 1 parts.
template <class Lanes>
LSM_HOST_DEVICE int64_t node_of_warp(const Lanes& lanes, const int64_t* offset, int64_t low,
                                     int64_t high, int64_t e) {
  while (high - low > 1) {
    const int64_t part = (high - low + Lanes::kLanes) / (Lanes::kLanes + 1);
    typename Lanes::template Var<bool> is_later;
    lanes.each([&](int lane) {
      const int64_t node = low + (lane + 1) * part;
      is_later[lane] = node >= high || offset[node] > e;
    });
    const int first = lanes.first(is_later);
    if (first < 0) {
      low += Lanes::kLanes * part;
      continue;
    }
    high = low + (first + 1) * part < high ? low + (first + 1) * part : high;
    low += first * part;
  }
  return low;
}

/// Draws positions for the nodes that do not take all their edges.
struct DrawNodes {
  Expanded nodes;
  uint64_t key;
  uint32_t hop;
  uint32_t* positions;  // by edge of the hop

  LSM_HOST_DEVICE void operator()(int64_t i) const { draw(i, nodes.num_drawn(i), nodes.offset[i]); }

  LSM_HOST_DEVICE void draw(int64_t i, int64_t num_drawn, int64_t offset) const {
    const uint32_t count = static_cast<uint32_t>(num_drawn);
    const uint32_t degree = nodes.degree[i];
    if (count == degree || count == 0) return;
    PhiloxStream random(key, static_cast<uint64_t>(nodes.batch.n_id[nodes.begin() + i]), hop);
    uint32_t* const drawn = positions + offset;
    // A list of any length, where the host takes a table from some count on: the draw is the same.
    if (degree <= 64) {
      draw_floyd(random, degree, count, TakenBits(), drawn);
    } else {
      draw_floyd(random, degree, count, TakenList(drawn), drawn);
    }
  }
};

/// Items of an OrderedSum: nodes, with the number of edges to draw. Also draws them, unless
/// `draw.positions` is null. kIsPlain: of one subgraph, in a graph that is plain.
template <class Id, bool kIsPlain>
struct CountEdges {
  static constexpr int kTile = 32;

  Graph<Id> graph;
  uint64_t limit;
  Expanded nodes;
  DrawNodes draw;

  LSM_HOST_DEVICE int64_t count() const { return nodes.count(); }

  LSM_HOST_DEVICE int64_t value(int64_t i) const {
    const int64_t local = nodes.begin() + i;
    InEdges in = graph.in_edges(kIsPlain ? nodes.batch.n_id[local] : nodes.batch.node(local));
    uint64_t count = in.degree < limit ? in.degree : limit;
    if constexpr (!kIsPlain) {
      graph.leave_out_later(in, nodes.batch.subgraph_of(local));
      count = graph.restrict(in, {}, limit);
    }
    nodes.first[i] = in.first;
    nodes.degree[i] = in.degree;
    return static_cast<int64_t>(count);
  }

  LSM_HOST_DEVICE void place(int64_t i, int64_t num_drawn, int64_t before) const {
    nodes.offset[i] = before;
    if (draw.positions != nullptr) draw.draw(i, num_drawn, before);
  }

  LSM_HOST_DEVICE void end(int64_t total) const {
    nodes.offset[count()] = total;
    *nodes.sizes.edges = nodes.first_edge() + total;
  }
};

/// The edges of a batch. `table`: of the sources.
struct Edges {
  Table table;
  int64_t* sources;       // ids of the batch's nodes, then local indices
  int64_t* destinations;  // local indices
  uint32_t* slot;         // of the source's id
  int64_t* edge_ids;      // numbers in the graph, or null: not wanted
};

/// Finds out where each edge of a hop comes from, and who names an id first. A warp for kEdges of
/// them, whose nodes it looks for together. Also extends the batch's indptr by the nodes. kIsSplit:
/// of several subgraphs, for which a thread of a GPU takes 40 registers in place of 32.
template <class Id, bool kIsSplit>
struct LoadSources {
  static constexpr int64_t kEdges = 32;

  const Id* indices;
  int64_t num_sources;
  Expanded nodes;
  const uint32_t* positions;  // by edge of the hop
  Edges edges;
  int64_t* damaged;  // an edge
  int64_t* indptr;

  /// Warps for up to `most_edges` edges into up to `most_nodes` nodes.
  static int64_t num_warps(int64_t most_nodes, int64_t most_edges) {
    const int64_t most = most_edges > most_nodes + 1 ? most_edges : most_nodes + 1;
    return (most + kEdges - 1) / kEdges;
  }

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t warp) const {
    const int64_t begin = warp * kEdges;
    const int64_t num_expanded = nodes.count(), num_edges = nodes.num_edges();
    const int64_t end = begin + kEdges < num_edges ? begin + kEdges : num_edges;
    int64_t first = 0, last = 0;
    if (begin < end) {
      first = node_of_warp(lanes, nodes.offset, 0, num_expanded, begin);
      last = node_of_warp(lanes, nodes.offset, first, num_expanded, end - 1);
    }
    lanes.each([&](int lane) {
      for (int64_t e = begin + lane; e < begin + kEdges; e += Lanes::kLanes) {
        if (e <= num_expanded) indptr[nodes.begin() + e] = nodes.first_edge() + nodes.offset[e];
        if (e < end) load(e, node_of(nodes.offset, first, last + 1, e));
      }
    });
  }

 private:
  LSM_HOST_DEVICE void load(int64_t e, int64_t i) const {
    const bool takes_all = nodes.num_drawn(i) == static_cast<int64_t>(nodes.degree[i]);
    const int64_t position = takes_all ? e - nodes.offset[i] : int64_t{positions[e]};
    const int64_t id = indices[nodes.first[i] + position];
    const int64_t at = nodes.first_edge() + e;
    edges.destinations[at] = nodes.begin() + i;
    edges.sources[at] = id;
    if (edges.edge_ids != nullptr) edges.edge_ids[at] = nodes.first[i] + position;
    edges.slot[at] = 0;
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(num_sources)) {
      atomic_min(damaged, at);
      return;
    }
    if constexpr (kIsSplit) {  // a source is in the subgraph of its destination
      edges.sources[at] += nodes.batch.subgraph[nodes.begin() + i] * num_sources;
    }
    edges.slot[at] = edges.table.enter(kIsSplit ? edges.sources[at] : id);
    atomic_min(edges.table.values + edges.slot[at], kFirstEdge + at);
  }
};

/// Items of an OrderedSum: the edges of a hop, of which those that name a node first give it the
/// next number. A slot of the table changes from that edge to the number.
struct NumberNodes {
  static constexpr int kTile = 128;

  Expanded nodes;
  Edges edges;
  BatchNodes sources;
  const int64_t* old_nodes;  // the number of sources before
  int64_t* num_nodes;        // and with those of the edges

  LSM_HOST_DEVICE int64_t count() const { return nodes.num_edges(); }

  LSM_HOST_DEVICE int64_t value(int64_t e) const {
    const int64_t at = nodes.first_edge() + e;
    return atomic_load(edges.table.values + edges.slot[at]) == kFirstEdge + at;
  }

  LSM_HOST_DEVICE void place(int64_t e, int64_t is_first, int64_t before) const {
    if (is_first == 0) return;
    const int64_t at = nodes.first_edge() + e, local = *old_nodes + before;
    sources.n_id[local] = edges.sources[at];
    if (sources.subgraph != nullptr) {
      sources.subgraph[local] = nodes.batch.subgraph[edges.destinations[at]];
    }
    atomic_store(edges.table.values + edges.slot[at], local);
  }

  LSM_HOST_DEVICE void end(int64_t total) const { *num_nodes = *old_nodes + total; }
};

/// Gives sources the numbers of their nodes. For edges of a batch from `first` on.
struct Relabel {
  Edges edges;
  int64_t first;

  LSM_HOST_DEVICE void operator()(int64_t e) const {
    edges.sources[first + e] = edges.table.values[edges.slot[first + e]];
  }
};

/// From ids of the batch to those among all types.
struct MoveIds {
  BatchNodes batch;
  int64_t offset;

  LSM_HOST_DEVICE void operator()(int64_t i) const { batch.n_id[i] = batch.node(i) + offset; }
};

}  // namespace lsm::device_sample
