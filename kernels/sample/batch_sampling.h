// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Samples one batch of a graph without types. Included by sampler.cpp only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sample/edge_sampling.h"
#include "kernels/sample/node_list.h"

namespace lsm {

/// Working memory of a batch, kept from batch to batch.
template <class Id, class Hops>
struct Workspace {
  IdTable<Id> table;
  EdgeWorkspace<Hops> edges;
};

/// Samples one batch: run() once.
template <class Id, class Hops>
class BatchSampling {
 public:
  BatchSampling(const Graph<Id>& graph, Workspace<Id, Hops>& workspace, BufferPool& buffers,
                ThreadPool& threads, const Sampling& kind, const BatchName& batch, EdgeIds edge_ids)
      : nodes_(workspace.table, buffers, graph.num_nodes),
        edges_(graph, {nodes_, nodes_}, workspace.edges, buffers, threads, kind, batch, edge_ids) {}

  SampledSubgraph run(std::span<const int64_t> seeds, const std::vector<int64_t>& fanouts) {
    nodes_.add_seeds(seeds, kOneSubgraph, 1);
    for (size_t hop = 0; hop < fanouts.size(); ++hop) {
      edges_.expand(static_cast<uint32_t>(hop), fanouts[hop]);
      nodes_.end_hop();
    }
    return {nodes_.release(), edges_.release()};
  }

 private:
  static constexpr int64_t kOneSubgraph = -1;

  NodeList<Id> nodes_;
  EdgeSampling<Id, Id, Hops> edges_;
};

}  // namespace lsm
