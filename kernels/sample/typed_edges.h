// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The edges of a graph with types, as a caller gives them and as samplers read them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/core/tensor_view.h"
#include "kernels/sample/graph.h"
#include "kernels/sample/sampling.h"

namespace lsm {

inline constexpr char kOnlyPlainLadies[] =
    "sampler.kind (sampling=): ladies samples graphs of one type, without times or subgraphs; set "
    "neighbor or labor";

/// The edges of one type in CSC form, and how many of them a batch takes. Types of nodes are
/// numbers.
struct TypedEdges {
  TensorView indptr;   // int64 [destinations + 1]
  TensorView indices;  // int32 or int64 [E], as of all types of edges
  int source = 0;
  int destination = 0;
  std::vector<int64_t> fanouts;       // by hop
  std::optional<TensorView> weights;  // float32 [E]
  std::optional<TensorView> times;    // int64 [E]
};

/// Options of a TypedSampler. With times, a batch has no edge later than the seed of its subgraph,
/// and a node's in-edges lie in the order of their times.
struct TypedOptions {
  bool disjoint = false;                              // a subgraph for each seed
  bool takes_last = false;                            // the latest edges rather than any
  std::vector<std::optional<TensorView>> node_times;  // int64, by type of nodes; empty: none
};

/// The edges of one type, checked. Ids of nodes are those of the ends' types. Not owned.
template <class Id>
struct EdgeType {
  Graph<Id> graph;
  int source;
  int destination;
  std::vector<int64_t> fanouts;  // by hop; as many as of all types of edges
};

/// Checks indptr, weights, times and their order: those of a mapped file are read. `num_nodes`: by
/// type. Id: int32_t or int64_t, as of the indices. Throws ArgumentError, and a MappedFile's
/// errors.
template <class Id>
std::vector<EdgeType<Id>> checked_edges(const std::vector<int64_t>& num_nodes,
                                        const std::vector<TypedEdges>& edges,
                                        const Sampling& sampling, const TypedOptions& options);

}  // namespace lsm
