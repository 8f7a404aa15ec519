// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Tiles of pairs: a warp loads a row once for several of the other side. Every pair is visited
// twice for its gradient, once for each of its rows, so that no two warps add to the same row.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/embed/gpu_distances.h"
#include "kernels/embed/models_functors.h"

namespace lsm {

LSM_HOST_DEVICE inline int64_t num_tiles(int64_t count, int64_t tile) {
  return (count + tile - 1) / tile;
}
LSM_HOST_DEVICE inline int64_t lesser(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/// A tile of scores: each lane has one entity and kQueries queries.
template <class Score>
struct TileOfScores {
  static constexpr int kQueries = 8;
  static constexpr int64_t kEntities = 32;

  DistanceChunks rows;
  float* scores;

  int64_t num_items() const {
    return rows.chunks * num_tiles(rows.num_queries, kQueries) *
           num_tiles(rows.num_entities, kEntities);
  }

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t item) const {
    const Coordinates<Score::kIsComplex> at{rows.dim};
    const int64_t entity_tiles = num_tiles(rows.num_entities, kEntities);
    const int64_t query_tiles = num_tiles(rows.num_queries, kQueries);
    const int64_t first_entity = item % entity_tiles * kEntities;
    const int64_t first_query = item / entity_tiles % query_tiles * kQueries;
    const int64_t chunk = item / (entity_tiles * query_tiles);
    const int64_t num_queries = lesser(kQueries, rows.num_queries - first_query);
    const int64_t query = chunk * rows.num_queries + first_query;
    lanes.each([&](int lane) {
      for (int64_t e = first_entity + lane; e < lesser(first_entity + kEntities, rows.num_entities);
           e += Lanes::kLanes) {
        const float* const entity = rows.entities + (chunk * rows.num_entities + e) * rows.dim;
        float parts[kQueries] = {};
        for (int64_t p = 0; p < at.count(); ++p) {
          const Coordinate of_entity = at.load(entity, p);
          for (int q = 0; q < kQueries; ++q) {
            if (q >= num_queries) break;
            parts[q] += Score::part(at.load(rows.queries + (query + q) * rows.dim, p), of_entity);
          }
        }
        for (int q = 0; q < kQueries; ++q) {
          if (q < num_queries) scores[(query + q) * rows.num_entities + e] = Score::score(parts[q]);
        }
      }
    });
  }
};

/// One side of all pairs: its rows, the rows of the other side, and its gradients.
struct PairSide {
  int64_t chunks;
  int64_t count;         // rows of a chunk ...
  int64_t others_count;  // ... and of the other side
  int64_t dim;
  const float* rows;
  const float* others;
  const float* of_scores;  // at row_stride and other_stride within a chunk
  int64_t row_stride;
  int64_t other_stride;
  float* of_rows;
  bool adds;
};

/// A tile of gradients: each lane has kCoordinates coordinates of kRows rows.
template <class Score>
struct TileOfGradients {
  static constexpr int kRows = 4;
  static constexpr int kCoordinates = Score::kIsComplex ? 2 : 4;

  PairSide side;

  int64_t num_items() const { return side.chunks * num_tiles(side.count, kRows); }

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t item) const {
    const Coordinates<Score::kIsComplex> at{side.dim};
    const int64_t tiles = num_tiles(side.count, kRows);
    const int64_t first = item % tiles * kRows;
    const int64_t chunk = item / tiles;
    const int64_t num_rows = lesser(kRows, side.count - first);
    const int64_t row = chunk * side.count + first;
    const float* const others = side.others + chunk * side.others_count * side.dim;
    const float* const of_scores =
        side.of_scores + chunk * side.count * side.others_count + first * side.row_stride;
    lanes.each([&](int lane) {
      for (int64_t p = lane; p < at.count(); p += int64_t{kCoordinates} * Lanes::kLanes) {
        Coordinate own[kRows][kCoordinates] = {}, sums[kRows][kCoordinates] = {};
        for (int r = 0; r < kRows; ++r) {
          for (int k = 0; k < kCoordinates; ++k) {
            const int64_t coordinate = p + int64_t{k} * Lanes::kLanes;
            if (r < num_rows && coordinate < at.count()) {
              own[r][k] = at.load(side.rows + (row + r) * side.dim, coordinate);
            }
          }
        }
        for (int64_t other = 0; other < side.others_count; ++other) {
          float gradients[kRows] = {};
          for (int r = 0; r < kRows; ++r) {
            if (r < num_rows) {
              gradients[r] = of_scores[r * side.row_stride + other * side.other_stride];
            }
          }
          for (int k = 0; k < kCoordinates; ++k) {
            const int64_t coordinate = p + int64_t{k} * Lanes::kLanes;
            if (coordinate >= at.count()) break;
            const Coordinate theirs = at.load(others + other * side.dim, coordinate);
            for (int r = 0; r < kRows; ++r) {
              sums[r][k] = sums[r][k] + Score::backward(gradients[r], own[r][k], theirs, 0).first;
            }
          }
        }
        for (int r = 0; r < kRows; ++r) {
          for (int k = 0; k < kCoordinates; ++k) {
            const int64_t coordinate = p + int64_t{k} * Lanes::kLanes;
            if (r >= num_rows || coordinate >= at.count()) continue;
            float* const out = side.of_rows + (row + r) * side.dim;
            const Coordinate before = side.adds ? at.load(out, coordinate) : Coordinate{0, 0};
            at.store(out, coordinate, before + sums[r][k]);
          }
        }
      }
    });
  }
};

}  // namespace lsm
