// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The kinds of sampling on the host: the parts of a hop in which they differ. BatchSampling does
// the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kernels/sample/hop_drawing.h"
#include "kernels/sample/ladies_hop.h"
#include "kernels/sample/sampling.h"

namespace lsm {

/// Samples the hops of one batch, in which each destination draws for itself. `kHasLayers`: a hop
/// samples nodes for all its destinations, which choose() does once all their edges are counted,
/// and its edges have weights.
class NodeHops {
 public:
  static constexpr bool kHasLayers = false;
  struct Workspace {};

  NodeHops(const Sampling& kind, const BatchName& batch, Workspace&) : kind_(kind), batch_(batch) {}

  std::optional<SourceDraws> draws(uint32_t hop) const { return draws_of(kind_, batch_, hop); }

 private:
  const Sampling kind_;
  const BatchName batch_;
};

/// Those of LadiesSampling.
template <class Id>
class LayerHops {
 public:
  static constexpr bool kHasLayers = true;
  /// Kept from batch to batch.
  using Workspace = LadiesHop<Id>;

  LayerHops(const Sampling& kind, const BatchName& batch, Workspace& workspace)
      : kind_(std::get<LadiesSampling>(kind)),
        key_(batch_key(batch.seed, batch.epoch, batch.iteration, batch.rank)),
        hop_(workspace) {}

  /// Chooses `count` nodes for the last of the `known` nodes, whose in-edges are `in_edges`, and
  /// replaces the edges that `indptr` counts by those to keep.
  void choose(const Graph<Id>& graph, std::span<const int64_t> known,
              std::span<const InEdges> in_edges, uint32_t hop, int64_t count, int64_t* indptr) {
    const int64_t num_edges = indptr[in_edges.size()] - indptr[0];
    hop_.choose(graph, known, in_edges, num_edges, {count, key_, hop, kind_.debias});
    hop_.count(indptr);
  }

  /// Writes the `count` edges of the chosen nodes; see LadiesHop::write().
  void write(int64_t first_node, int64_t count, int64_t* sources, int64_t* destinations,
             int64_t* edge_ids) {
    const size_t first = weights_.size();
    weights_.resize(first + static_cast<size_t>(count));
    hop_.write(first_node, sources, destinations, weights_.data() + first, edge_ids);
  }

  /// Of all edges written.
  std::span<const float> weights() const { return weights_; }

 private:
  const LadiesSampling kind_;
  const uint64_t key_;
  Workspace& hop_;
  std::vector<float> weights_;
};

}  // namespace lsm
