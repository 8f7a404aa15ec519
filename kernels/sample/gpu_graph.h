// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/core/tensor_view.h"
#include "kernels/sample/sampling.h"
#include "kernels/sample/typed_edges.h"

namespace lsm {

/// A graph in memory that a GPU reads, its own or page-locked host memory, and how it is sampled.
/// Not owned. Types of nodes are numbers.
struct GpuGraph {
  std::vector<int64_t> num_nodes;  // by type
  std::variant<std::vector<EdgeType<int32_t>>, std::vector<EdgeType<int64_t>>> edges;
  Sampling sampling = {};
  bool disjoint = false;  // a subgraph for each seed
};

/// The arrays of a graph: of its edges by type, and the times of its nodes by type, or none.
struct GraphArrays {
  const std::vector<TypedEdges>& edges;
  const std::vector<std::optional<TensorView>>& node_times;
};

/// `placed`: copies, in memory that the GPU reads, of the `edges` and of the times in `options`,
/// which are checked as by checked_edges(), and not kept.
GpuGraph make_gpu_graph(std::vector<int64_t> num_nodes, const std::vector<TypedEdges>& edges,
                        const Sampling& sampling, const TypedOptions& options,
                        const GraphArrays& placed);

}  // namespace lsm
