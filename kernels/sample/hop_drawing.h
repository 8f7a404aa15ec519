// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Draws the edges of one hop of one batch.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/sample/graph.h"
#include "kernels/sample/labor.h"
#include "kernels/sample/left_out.h"

namespace lsm {

/// A hop of a batch. Nodes are local indices, and indptr[i] is the place of node i's first edge.
struct Hop {
  uint64_t key;                      // of the batch
  uint32_t number;                   // 0 expands the seeds
  std::optional<SourceDraws> draws;  // LABOR's
  const int64_t* n_id;
  const int64_t* indptr;
  int64_t first_node;
  const InEdges* in_edges;  // of first_node and those after it
  int64_t* sources;
  int64_t* destinations;
};

/// Draws the edges of a hop. Calls for different nodes may run at the same time. Id: int32_t or
/// int64_t.
template <class Id>
class HopDrawing {
 public:
  HopDrawing(const Graph<Id>& graph, const Hop& hop, const LeftOutEdges<Id>& left_out)
      : graph_(graph), hop_(hop), left_out_(left_out) {}

  /// Draws in-edges for nodes [from, to). Writes their numbers in the graph, before
  /// LeftOutEdges::shift(), and their local destinations, and prefetches their sources.
  void draw_block(int64_t from, int64_t to) const;

  /// Replaces edge numbers by the ids of their sources.
  void load_sources(int64_t begin, int64_t end) const;

 private:
  const Graph<Id>& graph_;
  const Hop hop_;
  const LeftOutEdges<Id>& left_out_;
};

}  // namespace lsm
