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

/// A tile of scores: each lane has kOfLane entities and kQueries queries. A query's coordinate is
/// read once for all its entities, so that adding takes longer than reading.
template <class Score>
struct TileOfScores {
  static constexpr int kQueries = 8;
  static constexpr int kOfLane = 4;
  static constexpr int64_t kEntities = 32 * kOfLane;

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
    const int64_t end = lesser(first_entity + kEntities, rows.num_entities);
    const float* const transposed = rows.transposed + chunk * rows.dim * rows.num_entities;
    float* const out = scores + (chunk * rows.num_queries + first_query) * rows.num_entities;
    // Behind the last query and the last entity, these are read again, and nothing is written.
    const float* queries[kQueries];
    for (int q = 0; q < kQueries; ++q) {
      const int64_t query = chunk * rows.num_queries + first_query + lesser(q, num_queries - 1);
      queries[q] = rows.queries + query * rows.dim;
    }
    lanes.each([&](int lane) {
      for (int64_t first = first_entity + lane; first < end; first += kOfLane * Lanes::kLanes) {
        int64_t entities[kOfLane];
        for (int k = 0; k < kOfLane; ++k) entities[k] = lesser(first + k * Lanes::kLanes, end - 1);
        float parts[kQueries][kOfLane] = {};
        for (int64_t p = 0; p < at.count(); ++p) {
          Coordinate of_entities[kOfLane];
          for (int k = 0; k < kOfLane; ++k) {
            of_entities[k] = at.load_column(transposed + entities[k], p, rows.num_entities);
          }
          for (int q = 0; q < kQueries; ++q) {
            const Coordinate of_query = at.load(queries[q], p);
            for (int k = 0; k < kOfLane; ++k) {
              parts[q][k] += Score::part(of_query, of_entities[k]);
            }
          }
        }
        for (int q = 0; q < kQueries; ++q) {
          for (int k = 0; k < kOfLane; ++k) {
            const int64_t entity = first + k * Lanes::kLanes;
            if (q >= num_queries || entity >= end) continue;
            out[q * rows.num_entities + entity] = Score::score(parts[q][k]);
          }
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
  static constexpr int kRows = 8;
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
    // Behind the last row and the last coordinate, these are read again, and nothing is written.
    uint32_t rows[kRows];  // offsets of 32 bits take half the instructions
    for (int r = 0; r < kRows; ++r) {
      rows[r] = static_cast<uint32_t>(lesser(r, num_rows - 1) * side.row_stride);
    }
    lanes.each([&](int lane) {
      for (int64_t p = lane; p < at.count(); p += int64_t{kCoordinates} * Lanes::kLanes) {
        int64_t coordinates[kCoordinates];
        for (int k = 0; k < kCoordinates; ++k) {
          coordinates[k] = lesser(p + int64_t{k} * Lanes::kLanes, at.count() - 1);
        }
        Coordinate own[kRows][kCoordinates], sums[kRows][kCoordinates] = {};
        for (int r = 0; r < kRows; ++r) {
          const float* const of_row = side.rows + (row + lesser(r, num_rows - 1)) * side.dim;
          for (int k = 0; k < kCoordinates; ++k) own[r][k] = at.load(of_row, coordinates[k]);
        }
        for (int64_t other = 0; other < side.others_count; ++other) {
          const float* const of_others = of_scores + other * side.other_stride;
          float gradients[kRows];
          for (int r = 0; r < kRows; ++r) {
            gradients[r] = of_others[rows[r]];
          }
          for (int k = 0; k < kCoordinates; ++k) {
            const Coordinate theirs = at.load(others + other * side.dim, coordinates[k]);
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
