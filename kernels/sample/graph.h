// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The edges of one type as sampling reads them.
#pragma once

#include <cstdint>

#include "kernels/core/check.h"
#include "kernels/core/macros.h"
#include "kernels/core/prefetch.h"

namespace lsm {

/// The place of a node's in-edges.
struct InEdges {
  int64_t first;  // in the graph
  uint32_t degree;
};

/// In-edges of a node that a batch must not take: for each, the number of others before it, in the
/// order of the edges. Not owned.
struct LeftOut {
  const uint32_t* kept_before = nullptr;
  uint32_t count = 0;
};

/// Times of edges. A subgraph has no edge that is later than its seed. Not owned.
struct EdgeTimes {
  const int64_t* of_edges = nullptr;    // [num_edges], or null
  const int64_t* of_sources = nullptr;  // [num_sources], or null: an edge has its source's
  const int64_t* of_seeds = nullptr;    // by subgraph
  bool takes_last = false;              // the latest edges, not any

  LSM_HOST_DEVICE bool are_given() const { return of_edges != nullptr || of_sources != nullptr; }
};

/// A graph in CSC form, not owned. With times, a node's in-edges are in their order.
template <class Id>
struct Graph {
  const int64_t* indptr;  // [num_nodes + 1]
  const Id* indices;      // [num_edges] sources
  int64_t num_nodes;      // destinations
  int64_t num_sources;
  const float* weights = nullptr;  // [num_edges] finite, >= 0; null: all alike
  bool has_zero_weights = false;
  EdgeTimes times = {};

  /// True if each node may take all its in-edges, with the same chance.
  LSM_HOST_DEVICE bool is_plain() const { return weights == nullptr && !times.are_given(); }

  LSM_HOST_DEVICE InEdges in_edges(int64_t node) const {
    const int64_t first = indptr[node];
    return {first, static_cast<uint32_t>(indptr[node + 1] - first)};
  }

  /// Reduces the in-edges of a node to those that are not later than the subgraph's seed.
  LSM_HOST_DEVICE void leave_out_later(InEdges& in, int64_t subgraph) const {
    if (times.are_given()) in.degree = num_until(in, times.of_seeds[subgraph]);
  }

  /// Returns how many of a node's in-edges a batch takes if at most `limit`, and reduces them to
  /// the latest if it takes these.
  LSM_HOST_DEVICE uint64_t restrict(InEdges& in, const LeftOut& left_out, uint64_t limit) const {
    const uint32_t degree = in.degree - left_out.count;
    uint64_t count = degree < limit ? degree : limit;
    if (has_zero_weights) count = num_positive(in, left_out, count);
    in.degree = degree;
    if (times.takes_last) {
      in.first += in.degree - static_cast<int64_t>(count);
      in.degree = static_cast<uint32_t>(count);
    }
    return count;
  }

  /// Prefetches the middle of a node's times, where restrict() begins its search.
  LSM_ONLY_PREFETCHES void prefetch_times(int64_t node) const {
    const int64_t first = indptr[node];
    const int64_t middle = first + (indptr[node + 1] - first) / 2;
    if (times.of_edges != nullptr) {
      __builtin_prefetch(times.of_edges + middle);
    } else if (times.of_sources != nullptr) {
      __builtin_prefetch(indices + middle);
    }
  }

  /// Precondition: times are given.
  LSM_HOST_DEVICE int64_t time_of(int64_t edge) const {
    return times.of_edges != nullptr ? times.of_edges[edge] : times.of_sources[indices[edge]];
  }

 private:
  /// The number of `in` that are not later than `time`. Its steps depend on the degree alone: a
  /// branch on a time would often be mispredicted.
  LSM_HOST_DEVICE uint32_t num_until(const InEdges& in, int64_t time) const {
    uint32_t first = 0;
    for (uint32_t count = in.degree; count > 0;) {
      const uint32_t half = (count + 1) / 2;
      const bool is_until = time_of(in.first + first + half - 1) <= time;
      first += half & -static_cast<uint32_t>(is_until);
      count -= half;
    }
    return first;
  }

  /// At most `most`.
  LSM_HOST_DEVICE uint64_t num_positive(const InEdges& in, const LeftOut& left_out,
                                        uint64_t most) const {
    const uint64_t enough = most + left_out.count;
    uint64_t count = 0;
    for (uint32_t j = 0; j < in.degree && count < enough; ++j) count += weights[in.first + j] > 0;
    for (uint32_t i = 0; i < left_out.count; ++i) {
      count -= weights[in.first + left_out.kept_before[i] + i] > 0;
    }
    return count < most ? count : most;
  }
};

/// Throws ArgumentError unless a source in indices is a node.
inline void check_source(int64_t id, int64_t num_nodes) {
  check_argument(static_cast<uint64_t>(id) < static_cast<uint64_t>(num_nodes),
                 "indices: expected ids in [0, ", num_nodes, "), got ", id,
                 "; the topology is damaged: check it with `lsm data verify`");
}

}  // namespace lsm
