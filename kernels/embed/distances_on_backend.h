// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/core/check.h"
#include "kernels/embed/distances_functors.h"

namespace lsm {

/// Calls run.template of<Score>() for the member that is `comparator`. Returns false without
/// one.
template <class Run, class... Scores>
bool run_one(TypeList<Scores...>, Comparator comparator, const Run& run) {
  return ((Scores::kComparator == comparator && (run.template of<Scores>(), true)) || ...);
}

template <class Run>
void with_comparator(Comparator comparator, const Run& run) {
  check_argument(run_one(ElementComparators{}, comparator, run),
                 "comparator: expected one that no matrix product computes");
}

template <class Backend>
struct RunDistances {
  Backend& backend;
  const DistanceChunks& rows;
  float* scores;

  template <class Score>
  void of() const {
    const TileOfScores<Score> tile{rows, scores};
    backend.for_each_warp(tile.num_items(), tile);
  }
};

template <class Backend>
struct RunDistanceGradients {
  Backend& backend;
  const DistanceChunks& rows;
  const DistanceGradients& out;

  template <class Score>
  void of() const {
    check_argument(rows.num_entities < int64_t{1} << 29, "entities: expected fewer than 2^29");
    const PairSide queries{
        rows.chunks,   rows.num_queries, rows.num_entities, rows.dim, rows.queries,
        rows.entities, out.of_scores,    rows.num_entities, 1,        out.of_queries,
        false};
    const PairSide entities{rows.chunks,       rows.num_entities, rows.num_queries, rows.dim,
                            rows.entities,     rows.queries,      out.of_scores,    1,
                            rows.num_entities, out.of_entities,   out.adds};
    for (const PairSide& side : {queries, entities}) {
      const TileOfGradients<Score> tile{side};
      backend.for_each_warp(tile.num_items(), tile);
    }
  }
};

}  // namespace lsm
