// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A warp walks the coordinates of an edge. The backward pass makes queries again: that costs less
// than to store and load them.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/embed/gpu_edges.h"
#include "kernels/embed/models_functors.h"

namespace lsm {

/// The rows of one side of an edge.
template <class Model>
struct EdgeSide {
  const float* entity;
  const float* target;
  const float* relation;
  const float* dropout;
  bool inverse;

  LSM_HOST_DEVICE EdgeSide(const EdgeBatch& edges, int64_t i, int side)
      : entity(entity_row(edges, i, side)),
        target(entity_row(edges, i, 1 - side)),
        relation(nullptr),
        dropout(edges.dropout == nullptr ? nullptr
                                         : edges.dropout + (side * edges.count + i) * edges.dim),
        inverse(side == 1 && edges.inverse) {
    if (!Model::Operator::kHasRelations) return;
    relation =
        edges.relations + edges.relation_rows[side * edges.count + i] * edges.relation_stride;
  }

  /// Returns coordinate p of the query.
  template <class At>
  LSM_HOST_DEVICE Coordinate query(const At& at, int64_t p) const {
    const Coordinate made =
        Model::Operator::compose(at.load(entity, p), load_relation(at, p), inverse);
    return dropout == nullptr ? made : each_product(made, at.load(dropout, p));
  }
  template <class At>
  LSM_HOST_DEVICE Coordinate load_relation(const At& at, int64_t p) const {
    return relation == nullptr ? Coordinate{0, 0} : at.load(relation, p);
  }

 private:
  LSM_HOST_DEVICE static const float* entity_row(const EdgeBatch& edges, int64_t i, int side) {
    return edges.entities + edges.ends[side * edges.count + i] * edges.entity_stride;
  }
};

/// One side of an edge per warp: its query, and the score of the edge.
template <class Model>
struct FormQueries {
  EdgeBatch edges;
  EdgeQueries out;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t item) const {
    using Score = typename Model::Comparator;
    const Coordinates<Model::kIsComplex> at{edges.dim};
    const EdgeSide<Model> side(edges, item % edges.count, static_cast<int>(item / edges.count));
    float* const query = out.queries + item * edges.dim;
    typename Lanes::template Var<float> parts;
    lanes.each([&](int lane) {
      float sum = 0;
      for (int64_t p = lane; p < at.count(); p += Lanes::kLanes) {
        const Coordinate made = side.query(at, p);
        at.store(query, p, made);
        sum += Score::part(made, at.load(side.target, p));
      }
      parts[lane] = sum;
    });
    const float score = Score::score(lanes.sum(parts));
    lanes.each([&](int lane) {
      if (lane == 0) out.positives[item] = score;
    });
  }
};

/// One edge per warp: adds the gradients of its own scores to those of its negatives, and takes
/// them back through the queries of both sides at once.
template <class Model>
struct EdgeBackward {
  using Query = typename Model::Operator;
  using Score = typename Model::Comparator;

  EdgeBatch edges;
  EdgeGradients out;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const Coordinates<Model::kIsComplex> at{edges.dim};
    const EdgeSide<Model> sides[2] = {{edges, i, 0}, {edges, i, 1}};
    const float distances[2] = {distance(lanes, at, sides[0]), distance(lanes, at, sides[1])};
    typename Lanes::template Var<float> penalties;
    lanes.each([&](int lane) {
      float penalty = 0;
      for (int64_t p = lane; p < at.count(); p += Lanes::kLanes) {
        // A side's head is the other's tail.
        Coordinate of_entity[2], of_target[2];
        for (int s = 0; s < 2; ++s) {
          const int64_t item = s * edges.count + i;
          const EdgeSide<Model>& side = sides[s];
          const TwoGradients own = Score::backward(out.of_positives[item], side.query(at, p),
                                                   at.load(side.target, p), distances[s]);
          Coordinate of_query = at.load(out.of_queries + item * edges.dim, p) + own.first;
          if (side.dropout != nullptr) of_query = each_product(of_query, at.load(side.dropout, p));
          const Coordinate relation = side.load_relation(at, p);
          TwoGradients back =
              Query::backward(of_query, at.load(side.entity, p), relation, side.inverse);
          of_entity[s] = back.first;
          of_target[s] = own.second;
          if (Query::kHasRelations) {
            penalty += penalise(relation, 1, back.second);
            at.store(out.of_relations + item * edges.dim, p, back.second);
          }
        }
        for (int s = 0; s < 2; ++s) {
          Coordinate of_end = of_entity[s] + of_target[1 - s];
          penalty += penalise(at.load(sides[s].entity, p), 2, of_end);
          at.store(out.of_ends + (s * edges.count + i) * edges.dim, p, of_end);
        }
      }
      penalties[lane] = penalty;
    });
    if (out.penalty == Penalty::kNone) return;
    const float sum = lanes.sum(penalties);
    lanes.each([&](int lane) {
      if (lane == 0) out.losses[i] += sum;
    });
  }

 private:
  template <class Lanes, class At>
  LSM_HOST_DEVICE float distance(const Lanes& lanes, const At& at,
                                 const EdgeSide<Model>& side) const {
    if constexpr (!Score::kNeedsDistance) return 0;
    typename Lanes::template Var<float> squares;
    lanes.each([&](int lane) {
      float sum = 0;
      for (int64_t p = lane; p < at.count(); p += Lanes::kLanes) {
        sum += Score::part(side.query(at, p), at.load(side.target, p));
      }
      squares[lane] = sum;
    });
    return std::sqrt(lanes.sum(squares));
  }

  /// Returns `times` the penalty of `value`, and adds its gradient.
  LSM_HOST_DEVICE float penalise(const Coordinate& value, float times, Coordinate& gradient) const {
    if (out.penalty == Penalty::kNone) return 0;
    const float weight = times * out.weight;
    if (out.penalty == Penalty::kModuli) {
      const float modulus = value.modulus();
      gradient = gradient + value * (3 * weight * modulus);
      return weight * modulus * modulus * modulus;
    }
    const Coordinate size{std::abs(value.re), std::abs(value.im)};
    gradient = gradient + each_product(value, size) * (3 * weight);
    return weight * (size.re * size.re * size.re + size.im * size.im * size.im);
  }
};

}  // namespace lsm
