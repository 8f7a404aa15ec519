// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The kinds of sampling on the host: the parts of a hop in which they differ. BatchSampling does
// the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/sample/hop_drawing.h"
#include "kernels/sample/ladies_hop.h"
#include "kernels/sample/sampling.h"

namespace lsm {

/// Working memory of a kind, kept from batch to batch.
template <class Id, class Kind>
struct HopWorkspace {};

template <class Id>
struct HopWorkspace<Id, LadiesSampling> {
  LadiesHop<Id> hop;
};

/// Samples the hops of one batch. `kHasLayers`: a hop samples nodes for all its destinations, which
/// choose() does once all their edges are counted, and its edges have weights.
template <class Id, class Kind>
class HopSampler {
 public:
  static constexpr bool kHasLayers = false;
  HopSampler(const Kind& kind, const BatchName& batch, HopWorkspace<Id, Kind>&)
      : kind_(kind), batch_(batch) {}

  std::optional<SourceDraws> draws(uint32_t hop) const { return draws_of(kind_, batch_, hop); }

 private:
  const Kind kind_;
  const BatchName batch_;
};

template <class Id>
class HopSampler<Id, LadiesSampling> {
 public:
  static constexpr bool kHasLayers = true;
  HopSampler(const LadiesSampling& kind, const BatchName& batch,
             HopWorkspace<Id, LadiesSampling>& workspace)
      : kind_(kind),
        key_(batch_key(batch.seed, batch.epoch, batch.iteration, batch.rank)),
        workspace_(workspace) {}

  /// Chooses `count` nodes for the last of the `known` nodes, whose in-edges are `in_edges`, and
  /// replaces the edges that `indptr` counts by those to keep.
  void choose(const Graph<Id>& graph, std::span<const int64_t> known,
              std::span<const InEdges> in_edges, uint32_t hop, int64_t count, int64_t* indptr) {
    const int64_t num_edges = indptr[in_edges.size()] - indptr[0];
    workspace_.hop.choose(graph, known, in_edges, num_edges, {count, key_, hop, kind_.debias});
    workspace_.hop.count(indptr);
  }

  /// Writes the `count` edges of the chosen nodes; see LadiesHop::write().
  void write(int64_t first_node, int64_t count, int64_t* sources, int64_t* destinations,
             int64_t* edge_ids) {
    const size_t first = weights_.size();
    weights_.resize(first + static_cast<size_t>(count));
    workspace_.hop.write(first_node, sources, destinations, weights_.data() + first, edge_ids);
  }

  /// Of all edges written.
  std::span<const float> weights() const { return weights_; }

 private:
  const LadiesSampling kind_;
  const uint64_t key_;
  HopWorkspace<Id, LadiesSampling>& workspace_;
  std::vector<float> weights_;
};

}  // namespace lsm
