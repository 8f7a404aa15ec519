// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/core/check.h"
#include "kernels/embed/distances_functors.h"

namespace lsm {

/// Calls run.template of<kModel>() for the kModel that is `model`.
template <class Run>
void with_distance(EdgeModel model, const Run& run) {
  if (model == EdgeModel::kTransEL1) return run.template of<EdgeModel::kTransEL1>();
  check_argument(model == EdgeModel::kRotatE, "model: expected transe_l1 or rotate");
  run.template of<EdgeModel::kRotatE>();
}

template <class Backend>
struct RunDistances {
  Backend& backend;
  const DistanceChunks& rows;
  float* scores;

  template <EdgeModel kModel>
  void of() const {
    const TileOfScores<kModel> tile{rows, scores};
    backend.for_each_warp(tile.num_items(), tile);
  }
};

template <class Backend>
struct RunDistanceGradients {
  Backend& backend;
  const DistanceChunks& rows;
  const DistanceGradients& out;

  template <EdgeModel kModel>
  void of() const {
    const PairSide queries{
        rows.chunks,   rows.num_queries, rows.num_entities, rows.dim, rows.queries,
        rows.entities, out.of_scores,    rows.num_entities, 1,        out.of_queries,
        false};
    const PairSide entities{rows.chunks,       rows.num_entities, rows.num_queries, rows.dim,
                            rows.entities,     rows.queries,      out.of_scores,    1,
                            rows.num_entities, out.of_entities,   out.adds};
    for (const PairSide& side : {queries, entities}) {
      const TileOfGradients<kModel> tile{side};
      backend.for_each_warp(tile.num_items(), tile);
    }
  }
};

}  // namespace lsm
