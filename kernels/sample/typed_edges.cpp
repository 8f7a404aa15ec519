// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/typed_edges.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/core/check.h"
#include "kernels/core/mapped_file.h"
#include "kernels/sample/sampler.h"

namespace lsm {
namespace {

/// Returns true if a weight is zero.
bool check_weights(std::span<const float> weights, int64_t num_edges) {
  check_argument(static_cast<int64_t>(weights.size()) == num_edges, "weights: expected ", num_edges,
                 ", got ", weights.size());
  bool has_zero = false;
  for (size_t e = 0; e < weights.size(); ++e) {
    check_argument(std::isfinite(weights[e]) && weights[e] >= 0,
                   "weights: expected finite weights >= 0, got ", weights[e], " at edge ", e);
    has_zero |= weights[e] == 0;
  }
  check_mapped(weights.data());
  return has_zero;
}

template <class Id>
void check_times(const Graph<Id>& graph) {
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    int64_t last = INT64_MIN;
    for (int64_t e = graph.indptr[node]; e < graph.indptr[node + 1]; ++e) {
      if (graph.times.of_edges == nullptr) check_source(graph.indices[e], graph.num_sources);
      const int64_t time = graph.time_of(e);
      check_argument(time >= last,
                     "times: expected the in-edges of a node in the order of their "
                     "times; those of node ",
                     node, " are not");
      last = time;
    }
  }
  check_mapped(graph.indices);
}

template <class Id>
EdgeType<Id> checked_type(const TypedEdges& edges, const std::vector<int64_t>& num_nodes,
                          const Sampling& sampling, const TypedOptions& options) {
  check_fanouts(edges.fanouts);
  check_sampling(sampling, edges.fanouts);
  for (const int end : {edges.source, edges.destination}) {
    check_argument(end >= 0 && end < static_cast<int>(num_nodes.size()),
                   "edges: expected types of nodes in [0, ", num_nodes.size(), "), got ", end);
  }
  const auto indptr = edges.indptr.as<const int64_t>("indptr");
  const auto indices = edges.indices.as<const Id>("indices");
  const int64_t num_edges = static_cast<int64_t>(indices.size());
  const int64_t num_destinations = check_indptr(indptr, num_edges);
  check_argument(num_destinations == num_nodes[edges.destination], "indptr: expected that of ",
                 num_nodes[edges.destination], " nodes, got ", num_destinations);
  Graph<Id> graph{indptr.data(), indices.data(), num_destinations, num_nodes[edges.source]};
  if (edges.weights) {
    const auto weights = edges.weights->as<const float>("weights");
    graph.has_zero_weights = check_weights(weights, num_edges);
    graph.weights = weights.data();
  }
  if (edges.times) {
    const auto times = edges.times->as<const int64_t>("times");
    check_argument(static_cast<int64_t>(times.size()) == num_edges, "times: expected ", num_edges,
                   ", got ", times.size());
    graph.times.of_edges = times.data();
  } else if (!options.node_times.empty() && options.node_times[edges.source]) {
    const auto times = options.node_times[edges.source]->as<const int64_t>("node_times");
    check_argument(static_cast<int64_t>(times.size()) == graph.num_sources, "node_times: expected ",
                   graph.num_sources, ", got ", times.size());
    graph.times.of_sources = times.data();
  }
  graph.times.takes_last = options.takes_last;
  if (graph.times.are_given()) check_times(graph);
  return {graph, edges.source, edges.destination, edges.fanouts};
}

void check_options(const std::vector<int64_t>& num_nodes, const std::vector<TypedEdges>& edges,
                   const Sampling& sampling, const TypedOptions& options) {
  check_argument(!edges.empty(), "edges: expected at least one type");
  check_argument(!std::holds_alternative<LadiesSampling>(sampling) ||
                     (num_nodes.size() == 1 && edges.size() == 1 && !options.disjoint),
                 kOnlyPlainLadies);
  const bool has_weights =
      std::ranges::any_of(edges, [](const auto& type) { return type.weights.has_value(); });
  const bool has_times =
      !options.node_times.empty() ||
      std::ranges::any_of(edges, [](const auto& type) { return type.times.has_value(); });
  check_argument(!has_weights || std::holds_alternative<NeighborSampling>(sampling),
                 "weights: expected none with labor");
  check_argument(!has_times || options.disjoint, "times: expected a subgraph for each seed");
  check_argument(!options.takes_last || (has_times && !has_weights),
                 "last: expected times, and no weights");
  check_argument(options.node_times.empty() || options.node_times.size() == num_nodes.size(),
                 "node_times: expected an entry for each type of nodes");
  for (const auto& type : edges) {
    check_argument(type.fanouts.size() == edges.front().fanouts.size(),
                   "num_neighbors: expected as many hops for each type of edges");
    check_argument(type.indices.dtype == edges.front().indices.dtype,
                   "indices: expected one dtype for all types of edges");
  }
}

}  // namespace

template <class Id>
std::vector<EdgeType<Id>> checked_edges(const std::vector<int64_t>& num_nodes,
                                        const std::vector<TypedEdges>& edges,
                                        const Sampling& sampling, const TypedOptions& options) {
  check_options(num_nodes, edges, sampling, options);
  for (const int64_t count : num_nodes) {
    check_argument(sizeof(Id) == sizeof(int64_t) || count <= INT32_MAX,
                   "indices: expected int64 for ", count, " nodes");
  }
  std::vector<EdgeType<Id>> types;
  for (const TypedEdges& type : edges) {
    types.push_back(checked_type<Id>(type, num_nodes, sampling, options));
  }
  return types;
}

template std::vector<EdgeType<int32_t>> checked_edges(const std::vector<int64_t>&,
                                                      const std::vector<TypedEdges>&,
                                                      const Sampling&, const TypedOptions&);
template std::vector<EdgeType<int64_t>> checked_edges(const std::vector<int64_t>&,
                                                      const std::vector<TypedEdges>&,
                                                      const Sampling&, const TypedOptions&);

}  // namespace lsm
