// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// What a thread does for one node or one edge of a batch. Functors over raw memory. Nodes are
// numbered in the order in which the edges first name them, so a hash table keeps, for each id, the
// lowest edge: whichever thread comes first.
#pragma once

#include <cstdint>

#include "kernels/core/atomics.h"
#include "kernels/core/hash.h"
#include "kernels/core/macros.h"
#include "kernels/core/philox.h"
#include "kernels/sample/draw.h"

namespace lsm::device_sample {

/// Local indices are below, and names of edges of the current hop from here on.
inline constexpr int64_t kFirstEdge = int64_t{1} << 40;
inline constexpr int64_t kNoError = INT64_MAX;

/// From ids to what is known of them, at most half full. Not owned.
struct Table {
  int64_t* ids;     // [mask + 1] -1: empty
  int64_t* values;  // [mask + 1] a local index, or kFirstEdge + the first edge of this hop
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

  /// Whether `id` was entered, by an earlier kernel.
  LSM_HOST_DEVICE bool contains(int64_t id) const {
    uint64_t slot = mix64(static_cast<uint64_t>(id)) & mask;
    while (ids[slot] != -1 && ids[slot] != id) slot = (slot + 1) & mask;
    return ids[slot] == id;
  }
};

/// Enters nodes by number. Of equal ids the lowest number stays.
struct EnterNodes {
  Table table;
  const int64_t* n_id;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    atomic_min(table.values + table.enter(n_id[i]), i);
  }
};

/// Finds the lowest seed that is not where its id was entered: it is repeated.
struct CheckSeeds {
  Table table;
  const int64_t* n_id;
  int64_t* error;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    if (table.values[table.enter(n_id[i])] != i) atomic_min(error, i);
  }
};

/// The nodes that a hop expands: [m] from `begin` on.
struct Expanded {
  const int64_t* n_id;
  int64_t begin;
  int64_t* first;    // [m] of its in-edges in the graph
  uint32_t* degree;  // [m]
  int64_t* count;    // [m] of edges to draw
  int64_t* offset;   // [m + 1] of them in the hop
};

/// The last of nodes [low, high) whose edges begin at `e` or before. Precondition: those of `high`
/// begin later.
LSM_HOST_DEVICE inline int64_t node_of(const Expanded& nodes, int64_t low, int64_t high,
                                       int64_t e) {
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (nodes.offset[middle] <= e) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// The same for one edge of a warp: each step leaves one of kLanes + 1 parts.
template <class Lanes>
LSM_HOST_DEVICE int64_t node_of_warp(const Lanes& lanes, const Expanded& nodes, int64_t low,
                                     int64_t high, int64_t e) {
  while (high - low > 1) {
    const int64_t part = (high - low + Lanes::kLanes) / (Lanes::kLanes + 1);
    typename Lanes::template Var<bool> is_later;
    lanes.each([&](int lane) {
      const int64_t node = low + (lane + 1) * part;
      is_later[lane] = node >= high || nodes.offset[node] > e;
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

struct CountEdges {
  const int64_t* indptr;
  Expanded nodes;
  uint64_t limit;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t id = nodes.n_id[nodes.begin + i];
    const int64_t first = indptr[id];
    const uint64_t degree = static_cast<uint64_t>(indptr[id + 1] - first);
    nodes.first[i] = first;
    nodes.degree[i] = static_cast<uint32_t>(degree);
    nodes.count[i] = static_cast<int64_t>(degree < limit ? degree : limit);
  }
};

/// Draws positions for the nodes that do not take all their edges.
struct DrawNodes {
  Expanded nodes;
  uint64_t key;
  uint32_t hop;
  uint32_t* positions;  // by edge of the hop

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const uint32_t count = static_cast<uint32_t>(nodes.count[i]);
    const uint32_t degree = nodes.degree[i];
    if (count == degree || count == 0) return;
    PhiloxStream random(key, static_cast<uint64_t>(nodes.n_id[nodes.begin + i]), hop);
    uint32_t* const drawn = positions + nodes.offset[i];
    // A list of any length, where the host takes a table from some count on: the draw is the same.
    if (degree <= 64) {
      draw_floyd(random, degree, count, TakenBits(), drawn);
    } else {
      draw_floyd(random, degree, count, TakenList(drawn), drawn);
    }
  }
};

/// The edges of a hop, numbered from 0. There may be fewer than it has room for.
struct HopEdges {
  Table table;
  int64_t* sources;       // ids, then local indices
  int64_t* destinations;  // local indices
  uint32_t* slot;         // of the source's id
  int64_t* is_first;      // 1 if no edge before names that id
  int64_t* rank;          // of these, how many come before
  int64_t* edge_ids;      // numbers in the graph, or null: not wanted
  const int64_t* count;   // [1]
};

/// Finds out where each edge comes from, and who names an id first. A warp for kEdges of them,
/// whose nodes it looks for together. Also extends the batch's indptr by the nodes.
template <class Id>
struct LoadSources {
  static constexpr int64_t kEdges = 32;

  const Id* indices;
  int64_t num_nodes;
  Expanded nodes;
  int64_t num_expanded;
  const uint32_t* positions;
  HopEdges edges;
  int64_t* error;
  int64_t old_edges;  // of the batch
  int64_t* indptr;    // from the first node of the hop on

  /// Warps for up to `most_edges` edges.
  LSM_HOST_DEVICE int64_t num_warps(int64_t most_edges) const {
    const int64_t most = most_edges > num_expanded + 1 ? most_edges : num_expanded + 1;
    return (most + kEdges - 1) / kEdges;
  }

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t warp) const {
    const int64_t begin = warp * kEdges;
    const int64_t num_edges = *edges.count;
    const int64_t end = begin + kEdges < num_edges ? begin + kEdges : num_edges;
    int64_t first = 0, last = 0;
    if (begin < end) {
      first = node_of_warp(lanes, nodes, 0, num_expanded, begin);
      last = node_of_warp(lanes, nodes, first, num_expanded, end - 1);
    }
    lanes.each([&](int lane) {
      for (int64_t e = begin + lane; e < begin + kEdges; e += Lanes::kLanes) {
        if (e <= num_expanded) indptr[e] = old_edges + nodes.offset[e];
        if (e < end) load(e, node_of(nodes, first, last + 1, e));
      }
    });
  }

 private:
  LSM_HOST_DEVICE void load(int64_t e, int64_t i) const {
    const bool takes_all = nodes.count[i] == static_cast<int64_t>(nodes.degree[i]);
    const int64_t position = takes_all ? e - nodes.offset[i] : int64_t{positions[e]};
    const int64_t id = indices[nodes.first[i] + position];
    edges.destinations[e] = nodes.begin + i;
    edges.sources[e] = id;
    if (edges.edge_ids != nullptr) edges.edge_ids[e] = nodes.first[i] + position;
    edges.slot[e] = 0;
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(num_nodes)) {
      atomic_min(error, e);
      return;
    }
    edges.slot[e] = edges.table.enter(id);
    atomic_min(edges.table.values + edges.slot[e], kFirstEdge + e);
  }
};

struct MarkFirst {
  HopEdges edges;

  LSM_HOST_DEVICE void operator()(int64_t e) const {
    edges.is_first[e] = e < *edges.count && edges.table.values[edges.slot[e]] == kFirstEdge + e;
  }
};

/// Gives new nodes their numbers, and sources those of their nodes. A slot of the table changes
/// from the edge that names the node first to its number: whoever looks finds one or the other.
struct Relabel {
  HopEdges edges;
  int64_t num_nodes;  // before this hop
  int64_t* n_id;

  LSM_HOST_DEVICE void operator()(int64_t e) const {
    int64_t* const value = edges.table.values + edges.slot[e];
    const int64_t held = atomic_load(value);
    const int64_t local = held < kFirstEdge ? held : num_nodes + edges.rank[held - kFirstEdge];
    if (edges.is_first[e] != 0) {
      n_id[local] = edges.sources[e];
      atomic_store(value, local);
    }
    edges.sources[e] = local;
  }
};

}  // namespace lsm::device_sample
