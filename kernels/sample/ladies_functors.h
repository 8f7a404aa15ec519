// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// What a thread does for one in-edge, one slot of a table or one node of a hop that is sampled by
// LADIES. Edges are numbered among all in-edges of the hop's nodes, as `all` says; the host chooses
// among the candidates that are found, and edges are then compacted.
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

struct FlagSlots {
  Table candidates;
  int64_t* is_used;  // by slot

  LSM_HOST_DEVICE void operator()(int64_t slot) const {
    is_used[slot] = candidates.ids[slot] != -1;
  }
};

struct ListCandidates {
  Table candidates;
  Table batch;
  const int64_t* place;  // by slot
  LayerCandidate* list;

  LSM_HOST_DEVICE void operator()(int64_t slot) const {
    const int64_t id = candidates.ids[slot];
    if (id == -1) return;
    list[place[slot]] = {id, static_cast<uint64_t>(candidates.values[slot]), batch.contains(id)};
  }
};

struct MarkKept {
  const uint32_t* slot;
  const int64_t* place;
  const double* coefficients;
  int64_t* is_kept;  // by edge

  LSM_HOST_DEVICE void operator()(int64_t e) const {
    is_kept[e] = coefficients[place[slot[e]]] > 0;
  }
};

/// The kept edges of each node; `kept` has offsets of its own. For i in [0, num_expanded].
struct CountKept {
  Expanded all;
  Expanded kept;
  int64_t num_expanded;
  const int64_t* rank;  // of kept edges, how many come before an edge

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    kept.offset[i] = rank[all.offset[i]];
    if (i == num_expanded) kept.sizes[2].edges = kept.first_edge() + kept.offset[i];
  }
};

struct PlaceKept {
  Expanded all;
  int64_t num_expanded;
  const uint32_t* slot;
  const int64_t* place;
  const double* coefficients;
  const int64_t* is_kept;
  const int64_t* rank;
  uint32_t* positions;  // by kept edge
  double* of_edge;      // coefficients by kept edge

  LSM_HOST_DEVICE void operator()(int64_t e) const {
    if (is_kept[e] == 0) return;
    positions[rank[e]] =
        static_cast<uint32_t>(e - all.offset[node_of(all.offset, 0, num_expanded, e)]);
    of_edge[rank[e]] = coefficients[place[slot[e]]];
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
