// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The sampler of GPUs, and its twin on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/sample/sampler.h"

namespace lsm {

/// Sizes of a sampled subgraph; see SampledSubgraph.
struct SampleSizes {
  std::vector<int64_t> num_sampled_nodes;
  std::vector<int64_t> num_sampled_edges;
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_expanded = 0;
};

/// Destination of a sampled subgraph, in host or GPU memory.
struct SampleOutput {
  int64_t* n_id;    // [num_nodes]
  int64_t* edges;   // [2, num_edges]
  int64_t* indptr;  // [num_expanded + 1]
  float* weights;   // [num_edges], of LADIES; else not used
};

/// The subgraphs of NeighborSampler, edge by edge, sampled by a GPU. Holds one at a time. Not
/// thread-safe; calls block.
class GpuSampler {
 public:
  virtual ~GpuSampler() = default;

  /// Samples the host sampler's subgraph. `seeds`: distinct nodes, in host memory.
  virtual SampleSizes sample(std::span<const int64_t> seeds, const BatchName& batch,
                             EdgeIds edge_ids) = 0;

  /// Copies the last sample.
  virtual void copy_to(const SampleOutput& output) = 0;

  /// Copies its edge ids, which are positions in the CSC, [num_edges]. Precondition: they were
  /// recorded.
  virtual void copy_edge_ids(int64_t* out) = 0;
};

/// A graph in CSC form in memory that the GPU reads: its own, or page-locked host memory. Not
/// owned. Precondition: check_indptr() accepts indptr.
struct GpuGraph {
  const int64_t* indptr;  // [num_nodes + 1]
  const void* indices;    // int32 or int64
  bool has_wide_ids;      // int64
  int64_t num_nodes;
};

/// `backwards`: items in the opposite order.
std::unique_ptr<GpuSampler> make_twin_sampler(const GpuGraph& graph, std::vector<int64_t> fanouts,
                                              const Sampling& sampling, bool backwards);
/// On GPU `device`; waits take at most `timeout_secs`. Throws std::runtime_error where this was
/// built without CUDA.
std::unique_ptr<GpuSampler> make_gpu_sampler(const GpuGraph& graph, std::vector<int64_t> fanouts,
                                             const Sampling& sampling, int device,
                                             double timeout_secs);

}  // namespace lsm
