// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/gpu_graph.h"

#include <utility>

#include "kernels/core/check.h"

namespace lsm {
namespace {

/// The `count` elements of an array in memory of any kind.
template <class T>
const T* placed_array(const TensorView& array, int64_t count, const char* name) {
  check_argument(
      array.dtype == dtype_of<T>() && array.num_elements() == count && array.is_contiguous(), name,
      ": expected a copy of the ", count, " ", to_string(dtype_of<T>()), " on the host");
  return static_cast<const T*>(array.data);
}

/// Replaces the arrays of a checked type by their copies. An array without elements may be null,
/// and stays so.
template <class Id>
void place(const TypedEdges& edges, const TypedEdges& copy, const GraphArrays& placed,
           EdgeType<Id>* type) {
  Graph<Id>& graph = type->graph;
  const int64_t num_edges = edges.indices.num_elements();
  graph.indptr = placed_array<int64_t>(copy.indptr, graph.num_nodes + 1, "indptr");
  graph.indices = placed_array<Id>(copy.indices, num_edges, "indices");
  EdgeTimes& times = graph.times;
  const bool has_node_times =
      !placed.node_times.empty() && placed.node_times[type->source].has_value();
  check_argument(copy.weights.has_value() == edges.weights.has_value() &&
                     copy.times.has_value() == edges.times.has_value() &&
                     (times.of_sources == nullptr || has_node_times),
                 "weights, times: expected copies of those on the host");
  if (graph.weights != nullptr) {
    graph.weights = placed_array<float>(*copy.weights, num_edges, "weights");
  }
  if (times.of_edges != nullptr) {
    times.of_edges = placed_array<int64_t>(*copy.times, num_edges, "times");
  }
  if (times.of_sources != nullptr) {
    times.of_sources =
        placed_array<int64_t>(*placed.node_times[type->source], graph.num_sources, "node_times");
  }
}

template <class Id>
std::vector<EdgeType<Id>> placed_edges(const std::vector<int64_t>& num_nodes,
                                       const std::vector<TypedEdges>& edges,
                                       const Sampling& sampling, const TypedOptions& options,
                                       const GraphArrays& placed) {
  std::vector<EdgeType<Id>> types = checked_edges<Id>(num_nodes, edges, sampling, options);
  check_argument(placed.edges.size() == types.size(), "edges: expected copies of ", types.size(),
                 " types, got ", placed.edges.size());
  check_argument(placed.node_times.empty() || placed.node_times.size() == num_nodes.size(),
                 "node_times: expected an entry for each type of nodes");
  for (size_t i = 0; i < types.size(); ++i) {
    place(edges[i], placed.edges[i], placed, &types[i]);
  }
  return types;
}

}  // namespace

GpuGraph make_gpu_graph(std::vector<int64_t> num_nodes, const std::vector<TypedEdges>& edges,
                        const Sampling& sampling, const TypedOptions& options,
                        const GraphArrays& placed) {
  GpuGraph graph{std::move(num_nodes), {}, sampling, options.disjoint};
  if (!edges.empty() && edges.front().indices.dtype == dtype_of<int32_t>()) {
    graph.edges = placed_edges<int32_t>(graph.num_nodes, edges, sampling, options, placed);
  } else {
    graph.edges = placed_edges<int64_t>(graph.num_nodes, edges, sampling, options, placed);
  }
  return graph;
}

}  // namespace lsm
