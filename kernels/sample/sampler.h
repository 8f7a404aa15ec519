// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/core/tensor_view.h"
#include "kernels/sample/sampling.h"

namespace lsm {

/// The nodes of one type in a sampled subgraph. Memory comes from the sampler's BufferPool; buffers
/// may be larger than their contents.
struct SampledNodes {
  std::shared_ptr<HostBuffer> n_id;        // int64 [num_nodes]: seeds, then each hop's new nodes
  std::shared_ptr<HostBuffer> subgraph;    // int64 [num_nodes], if each seed has a subgraph
  std::vector<int64_t> num_sampled_nodes;  // seeds, then new nodes of each hop
  int64_t num_nodes = 0;
};

/// The edges of one type in a sampled subgraph, as SampledNodes.
struct SampledEdges {
  std::shared_ptr<HostBuffer> edges;     // int64 [2, num_edges]: local sources, local destinations
  std::shared_ptr<HostBuffer> indptr;    // int64 [num_expanded + 1]: in-edges of the expanded nodes
  std::shared_ptr<HostBuffer> weights;   // float [num_edges], of LADIES only
  std::shared_ptr<HostBuffer> edge_ids;  // int64 [num_edges]: indices into the CSC, if recorded
  std::vector<int64_t> num_sampled_edges;  // of each hop
  int64_t num_edges = 0;
  int64_t num_expanded = 0;  // destinations: all nodes but the last hop's new ones
};

/// A sampled subgraph of one type, relabelled.
struct SampledSubgraph : SampledNodes, SampledEdges {};

/// Uniform neighbour sampling without replacement over a graph in CSC form. Hop h draws min(degree,
/// fanouts[h]) in-edges (-1: all) of each node that is new in hop h - 1, so a node is expanded
/// once. NeighborSampling: a node's draw comes from PhiloxStream(batch key, node id, hop);
/// LaborSampling: a node takes the in-edges whose SourceDraws are smallest, in the graph's order.
/// LadiesSampling: hop h samples fanouts[h] nodes for all its destinations together
/// (choose_layer()), and keeps the edges from these, and from nodes that the batch has already,
/// with weights.
class NeighborSampler {
 public:
  virtual ~NeighborSampler() = default;

  /// `seeds` are distinct nodes. Any number of threads may call at once.
  virtual SampledSubgraph sample(std::span<const int64_t> seeds, const BatchName& batch,
                                 EdgeIds edge_ids) = 0;
};

/// `indptr` int64 [N + 1] and `indices` int32 or int64 [E] are not copied and must outlive the
/// sampler. If they lie in a MappedFile, sample() throws its errors. Checks indptr now, and the
/// values of indices as sampling reads them. `num_threads` threads share the drawing of one batch.
std::unique_ptr<NeighborSampler> make_neighbor_sampler(const TensorView& indptr,
                                                       const TensorView& indices,
                                                       std::vector<int64_t> fanouts,
                                                       int num_threads,
                                                       const Sampling& sampling = {});

/// Throws ArgumentError for an invalid number of neighbours.
void check_fanouts(std::span<const int64_t> fanouts);

/// Throws ArgumentError for options that are invalid, or invalid with `fanouts`.
void check_sampling(const Sampling& sampling, std::span<const int64_t> fanouts);

/// Throws ArgumentError unless `indptr` int64 [N + 1] rises from 0 to `num_edges` and every degree
/// fits 32 bits. Returns N.
int64_t check_indptr(std::span<const int64_t> indptr, int64_t num_edges);

}  // namespace lsm
