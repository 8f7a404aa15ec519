// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The work of a thread for one in-edge, one slot of a table or one node of a hop that LADIES
// samples. Edges are numbered among all in-edges of the hop's nodes, as `all` says; the host
// chooses among the candidates that are found, and edges are then compacted.
#pragma once

#include <cstdint>

#include "kernels/core/atomics.h"
#include "kernels/core/macros.h"
#include "kernels/sample/ladies.h"
#include "kernels/sample/sampler_functors.h"

namespace lsm::device_sample {

/// Adds up the masses of the sources. Table values are masses here.
template <class Id>
struct CollectCandidates {
  const Id* indices;
  int64_t num_nodes;
  Expanded all;
  int64_t num_expanded;
  int shift;
  Table candidates;
  uint32_t* slot;  // by edge
  int64_t* error;

  LSM_HOST_DEVICE void operator()(int64_t e) const {
    const int64_t i = node_of(all.offset, 0, num_expanded, e);
    const int64_t id = indices[all.first[i] + (e - all.offset[i])];
    slot[e] = 0;
    if (static_cast<uint64_t>(id) >= static_cast<uint64_t>(num_nodes)) {
      atomic_min(error, e);
      return;
    }
    slot[e] = candidates.enter(id);
    atomic_add(candidates.values + slot[e], static_cast<int64_t>(edge_mass(all.degree[i], shift)));
  }
};

/// Items of an OrderedSum: slots of the table, whose candidates are listed in their order.
struct ListCandidates {
  static constexpr int kTile = 128;

  int64_t num_slots;
  Table candidates;
  Table batch;
  int64_t* number;  // by slot: place in the list
  LayerCandidate* list;
  int64_t* num_candidates;

  LSM_HOST_DEVICE int64_t count() const { return num_slots; }
  LSM_HOST_DEVICE int64_t value(int64_t slot) const { return candidates.ids[slot] != -1; }

  LSM_HOST_DEVICE void place(int64_t slot, int64_t is_used, int64_t before) const {
    if (is_used == 0) return;
    const int64_t id = candidates.ids[slot];
    number[slot] = before;
    list[before] = {id, static_cast<uint64_t>(candidates.values[slot]), batch.contains(id)};
  }

  LSM_HOST_DEVICE void end(int64_t total) const { *num_candidates = total; }
};

/// Items of an OrderedSum: edges, of which those with a kept source are compacted.
struct KeepEdges {
  static constexpr int kTile = 128;

  int64_t num_edges;
  Expanded all;
  int64_t num_expanded;
  const uint32_t* slot;
  const int64_t* number;
  const double* coefficients;  // by place in the list of candidates
  int64_t* rank;               // [num_edges + 1] kept edges before each
  uint32_t* positions;         // by kept edge
  double* of_edge;             // coefficients by kept edge

  LSM_HOST_DEVICE int64_t count() const { return num_edges; }
  LSM_HOST_DEVICE int64_t value(int64_t e) const { return coefficient(e) > 0; }

  LSM_HOST_DEVICE void place(int64_t e, int64_t is_kept, int64_t before) const {
    rank[e] = before;
    if (is_kept == 0) return;
    const int64_t i = node_of(all.offset, 0, num_expanded, e);
    positions[before] = static_cast<uint32_t>(e - all.offset[i]);
    of_edge[before] = coefficient(e);
  }

  LSM_HOST_DEVICE void end(int64_t total) const { rank[num_edges] = total; }

 private:
  LSM_HOST_DEVICE double coefficient(int64_t e) const { return coefficients[number[slot[e]]]; }
};

/// The kept edges of each node; `kept` has offsets of its own. For i in [0, num_expanded].
struct CountKept {
  Expanded all;
  Expanded kept;
  int64_t num_expanded;
  const int64_t* rank;  // of kept edges, how many come before an edge

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    kept.offset[i] = rank[all.offset[i]];
    if (i == num_expanded) *kept.sizes.edges = kept.first_edge() + kept.offset[i];
  }
};

/// Weights of a node's kept edges, with sums in the order of the edges.
struct WeighEdges {
  Expanded kept;
  bool debias;
  const double* of_edge;
  float* weights;  // by kept edge

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t begin = kept.offset[i];
    const int64_t end = kept.offset[i + 1];
    double divisor = debias ? kept.degree[i] : 0;
    for (int64_t e = begin; !debias && e < end; ++e) divisor += of_edge[e];
    for (int64_t e = begin; e < end; ++e) weights[e] = static_cast<float>(of_edge[e] / divisor);
  }
};

}  // namespace lsm::device_sample
