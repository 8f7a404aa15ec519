// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The sampler of GPUs, and its twin on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/sample/gpu_graph.h"
#include "kernels/sample/sampling.h"
#include "kernels/sample/typed_sampler.h"

namespace lsm {

/// Sizes of a sampled subgraph; see TypedSubgraph.
struct SampleSizes {
  std::vector<std::vector<int64_t>> num_sampled_nodes;  // by type of nodes
  std::vector<std::vector<int64_t>> num_sampled_edges;  // by type of edges
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_bounds = 0;
};

/// Destination of a sampled subgraph, in host or GPU memory; see TypedSubgraph.
struct SampleOutput {
  int64_t* n_id;      // [num_nodes]
  int64_t* edges;     // [2, num_edges]
  int64_t* indptr;    // [num_bounds]
  float* weights;     // [num_edges], of LADIES; else not used
  int64_t* subgraph;  // [num_nodes], if each seed has a subgraph; else not used
};

/// The subgraphs of TypedSampler, and of NeighborSampler for a graph of one type, edge by edge,
/// sampled by a GPU. Holds one at a time. Not thread-safe; calls block.
class GpuSampler {
 public:
  virtual ~GpuSampler() = default;

  /// Samples the host sampler's subgraph. `seeds` lie in host memory.
  virtual SampleSizes sample(const TypedSeeds& seeds, const BatchName& batch, EdgeIds edge_ids) = 0;

  /// Copies the last sample.
  virtual void copy_to(const SampleOutput& output) = 0;

  /// Copies its edge ids, which are positions in the CSC of their type, [num_edges]. Precondition:
  /// they were recorded.
  virtual void copy_edge_ids(int64_t* out) = 0;

  /// The cudaStream_t that copies run on; 0 on the host.
  virtual intptr_t stream() const = 0;
};

/// `backwards`: items in the opposite order.
std::unique_ptr<GpuSampler> make_twin_sampler(const GpuGraph& graph, bool backwards);
/// On GPU `device`; waits take at most `timeout_secs`. Throws std::runtime_error where this was
/// built without CUDA.
std::unique_ptr<GpuSampler> make_gpu_sampler(const GpuGraph& graph, int device,
                                             double timeout_secs);

}  // namespace lsm
