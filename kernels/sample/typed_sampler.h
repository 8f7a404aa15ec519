// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/sample/left_out.h"
#include "kernels/sample/sampling.h"
#include "kernels/sample/typed_edges.h"

namespace lsm {

/// Seeds of one type. They are distinct, unless each has a subgraph.
struct TypedSeeds {
  int type = 0;
  std::span<const int64_t> ids;
  std::span<const int64_t> times;  // as many, or none without times
};

/// A sampled subgraph of all types: arrays of SampledSubgraph, one type after another. Ids of nodes
/// are those of one space, in which the types follow one another; local indices and edge ids are
/// those of the type.
struct TypedSubgraph {
  std::shared_ptr<HostBuffer> n_id;      // int64 [num_nodes]
  std::shared_ptr<HostBuffer> subgraph;  // int64 [num_nodes], if each seed has a subgraph
  std::shared_ptr<HostBuffer> edges;     // int64 [2, num_edges]
  std::shared_ptr<HostBuffer> indptr;    // int64 [num_bounds]: of each type from 0
  std::shared_ptr<HostBuffer> edge_ids;  // int64 [num_edges], if recorded
  std::vector<std::vector<int64_t>> num_sampled_nodes;  // by type of nodes
  std::vector<std::vector<int64_t>> num_sampled_edges;  // by type of edges
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_bounds = 0;
};

/// Neighbour sampling without replacement over a graph with types. Hop h draws, for each type of
/// edges in turn, min(degree, fanouts[h]) in-edges of each node of the destinations' type that is
/// new in hop h - 1. Edges with weights are drawn in proportion to these, and never one of weight
/// 0; an edge without its own time has that of its source, if this has one. A graph of one type is
/// sampled as by NeighborSampler.
class TypedSampler {
 public:
  virtual ~TypedSampler() = default;

  /// With a subgraph for each seed, these are numbered as the seeds come. Any number of threads may
  /// call at once.
  /// `excluded`: of each type of edges, or none; pairs of seeds that no edge of the batch has.
  virtual TypedSubgraph sample(std::span<const TypedSeeds> seeds, const BatchName& batch,
                               EdgeIds edge_ids, std::span<const ExcludedPairs> excluded = {}) = 0;
};

/// `num_nodes`: by type. Tensors are not copied and must outlive the sampler. Checks indptr,
/// weights, times and their order now, and the values of indices as sampling reads them.
std::unique_ptr<TypedSampler> make_typed_sampler(std::vector<int64_t> num_nodes,
                                                 std::vector<TypedEdges> edges, int num_threads,
                                                 const Sampling& sampling,
                                                 const TypedOptions& options);

}  // namespace lsm
