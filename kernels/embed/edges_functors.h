// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The models of edges for one coordinate, and warps that walk the coordinates of an edge. A query
// is made again for its gradient: that costs less than to store and load it.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/embed/gpu_edges.h"

namespace lsm {

/// A coordinate: a complex number, or of real models a float.
struct Coordinate {
  float re;
  float im;

  LSM_HOST_DEVICE Coordinate operator+(const Coordinate& b) const { return {re + b.re, im + b.im}; }
  LSM_HOST_DEVICE Coordinate operator-(const Coordinate& b) const { return {re - b.re, im - b.im}; }
  LSM_HOST_DEVICE Coordinate operator*(float f) const { return {re * f, im * f}; }
  LSM_HOST_DEVICE float square() const { return re * re + im * im; }
  LSM_HOST_DEVICE float modulus() const { return std::sqrt(square()); }
};

LSM_HOST_DEVICE inline Coordinate each_product(const Coordinate& a, const Coordinate& b) {
  return {a.re * b.re, a.im * b.im};
}
LSM_HOST_DEVICE inline Coordinate conjugate(const Coordinate& a) {
  return {a.re, -a.im};
}
LSM_HOST_DEVICE inline Coordinate complex_product(const Coordinate& a, const Coordinate& b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
LSM_HOST_DEVICE inline float sign(float value) {
  return value > 0 ? 1.0f : value < 0 ? -1.0f : 0.0f;
}

/// Where coordinate p of a row is.
template <bool kIsComplex>
struct Coordinates {
  int64_t dim;

  LSM_HOST_DEVICE int64_t count() const { return kIsComplex ? dim / 2 : dim; }
  LSM_HOST_DEVICE Coordinate load(const float* row, int64_t p) const {
    return {row[p], kIsComplex ? row[p + dim / 2] : 0.0f};
  }
  LSM_HOST_DEVICE void store(float* row, int64_t p, const Coordinate& value) const {
    row[p] = value.re;
    if (kIsComplex) row[p + dim / 2] = value.im;
  }
};

struct TwoGradients {
  Coordinate first;
  Coordinate second;
};

/// Queries of an entity and a relation, and scores of queries against entities, as in
/// lsm.embed.composition and lsm.embed.scores.
template <EdgeModel kModel>
struct EdgeFormulas {
  static constexpr bool kIsComplex = kModel == EdgeModel::kComplEx || kModel == EdgeModel::kRotatE;
  static constexpr bool kIsProduct =
      kModel == EdgeModel::kDot || kModel == EdgeModel::kDistMult || kModel == EdgeModel::kComplEx;
  static constexpr bool kIsTranslation =
      kModel == EdgeModel::kTransEL1 || kModel == EdgeModel::kTransEL2;
  static constexpr bool kHasRelations = kModel != EdgeModel::kDot;

  LSM_HOST_DEVICE static Coordinate compose(const Coordinate& entity, const Coordinate& relation,
                                            bool inverse) {
    if constexpr (kModel == EdgeModel::kDot) return entity;
    if constexpr (kModel == EdgeModel::kDistMult) return each_product(entity, relation);
    if constexpr (kIsTranslation) return inverse ? entity - relation : entity + relation;
    const Coordinate turn = kModel == EdgeModel::kRotatE ? unit(relation) : relation;
    return complex_product(entity, inverse ? conjugate(turn) : turn);
  }

  /// Gradients of entity and relation, given that of the query.
  LSM_HOST_DEVICE static TwoGradients compose_backward(const Coordinate& gradient,
                                                       const Coordinate& entity,
                                                       const Coordinate& relation, bool inverse) {
    if constexpr (kModel == EdgeModel::kDot) return {gradient, {0, 0}};
    if constexpr (kModel == EdgeModel::kDistMult) {
      return {each_product(gradient, relation), each_product(gradient, entity)};
    }
    if constexpr (kIsTranslation) return {gradient, inverse ? gradient * -1.0f : gradient};
    const Coordinate turn = kModel == EdgeModel::kRotatE ? unit(relation) : relation;
    const Coordinate of_entity = complex_product(gradient, inverse ? turn : conjugate(turn));
    const Coordinate of_turn = inverse ? complex_product(entity, conjugate(gradient))
                                       : complex_product(gradient, conjugate(entity));
    if constexpr (kModel == EdgeModel::kComplEx) return {of_entity, of_turn};
    // Only the part of the gradient that is orthogonal to the relation turns it.
    const float along = turn.re * of_turn.re + turn.im * of_turn.im;
    return {of_entity, (of_turn - turn * along) * (1 / modulus(relation))};
  }

  /// A coordinate's part of the score, which score() finishes.
  LSM_HOST_DEVICE static float part(const Coordinate& query, const Coordinate& entity) {
    if constexpr (kIsProduct) return query.re * entity.re + query.im * entity.im;
    const Coordinate apart = query - entity;
    if constexpr (kModel == EdgeModel::kTransEL1) return std::abs(apart.re);
    if constexpr (kModel == EdgeModel::kTransEL2) return apart.square();
    return apart.modulus();
  }
  LSM_HOST_DEVICE static float score(float parts) {
    if constexpr (kIsProduct) return parts;
    return kModel == EdgeModel::kTransEL2 ? -std::sqrt(parts) : -parts;
  }
  /// Gradients of query and entity, given those of the score and, for TransE L2, the distance.
  LSM_HOST_DEVICE static TwoGradients score_backward(float gradient, const Coordinate& query,
                                                     const Coordinate& entity, float distance) {
    if constexpr (kIsProduct) return {entity * gradient, query * gradient};
    const Coordinate apart = query - entity;
    Coordinate pull{};
    if constexpr (kModel == EdgeModel::kTransEL1) {
      pull = {sign(apart.re) * gradient, 0};
    } else {
      const float by = kModel == EdgeModel::kTransEL2 ? distance : apart.modulus();
      pull = by > 0 ? apart * (gradient / by) : Coordinate{0, 0};
    }
    return {pull * -1.0f, pull};
  }

 private:
  LSM_HOST_DEVICE static float modulus(const Coordinate& relation) {
    const float length = relation.modulus();
    constexpr float kTiny = FLT_MIN;
    return length > kTiny ? length : kTiny;
  }
  LSM_HOST_DEVICE static Coordinate unit(const Coordinate& relation) {
    return relation * (1 / modulus(relation));
  }
};

/// The rows of one side of an edge.
template <EdgeModel kModel>
struct EdgeSide {
  const float* given;
  const float* missing;
  const float* relation;
  const float* kept;
  bool inverse;

  LSM_HOST_DEVICE EdgeSide(const EdgeBatch& edges, int64_t i, int side)
      : given(entity(edges, i, side)),
        missing(entity(edges, i, 1 - side)),
        relation(nullptr),
        kept(edges.kept == nullptr ? nullptr : edges.kept + (side * edges.count + i) * edges.dim),
        inverse(side == 1 && edges.inverse) {
    if (!EdgeFormulas<kModel>::kHasRelations) return;
    relation =
        edges.relations + edges.relation_rows[side * edges.count + i] * edges.relation_stride;
  }

  /// The coordinate p of the query.
  template <class At>
  LSM_HOST_DEVICE Coordinate query(const At& at, int64_t p) const {
    const Coordinate made =
        EdgeFormulas<kModel>::compose(at.load(given, p), load_relation(at, p), inverse);
    return kept == nullptr ? made : each_product(made, at.load(kept, p));
  }
  template <class At>
  LSM_HOST_DEVICE Coordinate load_relation(const At& at, int64_t p) const {
    return relation == nullptr ? Coordinate{0, 0} : at.load(relation, p);
  }

 private:
  LSM_HOST_DEVICE static const float* entity(const EdgeBatch& edges, int64_t i, int side) {
    return edges.entities + edges.ends[side * edges.count + i] * edges.entity_stride;
  }
};

/// A warp per edge and side.
template <EdgeModel kModel>
struct FormQueries {
  EdgeBatch edges;
  EdgeQueries out;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t item) const {
    using M = EdgeFormulas<kModel>;
    const Coordinates<M::kIsComplex> at{edges.dim};
    const EdgeSide<kModel> side(edges, item % edges.count, static_cast<int>(item / edges.count));
    float* const query = out.queries + item * edges.dim;
    typename Lanes::template Var<float> parts;
    lanes.each([&](int lane) {
      float sum = 0;
      for (int64_t p = lane; p < at.count(); p += Lanes::kLanes) {
        const Coordinate made = side.query(at, p);
        at.store(query, p, made);
        sum += M::part(made, at.load(side.missing, p));
      }
      parts[lane] = sum;
    });
    const float score = M::score(lanes.sum(parts));
    lanes.each([&](int lane) {
      if (lane == 0) out.positives[item] = score;
    });
  }
};

/// A warp per edge: adds what comes from its own scores to what comes from negatives, and goes back
/// through the queries of both sides at once.
template <EdgeModel kModel>
struct EdgeBackward {
  using M = EdgeFormulas<kModel>;

  EdgeBatch edges;
  EdgeGradients out;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const Coordinates<M::kIsComplex> at{edges.dim};
    const EdgeSide<kModel> sides[2] = {{edges, i, 0}, {edges, i, 1}};
    const float distances[2] = {distance(lanes, at, sides[0]), distance(lanes, at, sides[1])};
    typename Lanes::template Var<float> penalties;
    lanes.each([&](int lane) {
      float penalty = 0;
      for (int64_t p = lane; p < at.count(); p += Lanes::kLanes) {
        // A side's head is the other's tail.
        Coordinate of_given[2], of_missing[2];
        for (int s = 0; s < 2; ++s) {
          const int64_t item = s * edges.count + i;
          const EdgeSide<kModel>& side = sides[s];
          const TwoGradients own = M::score_backward(out.of_positives[item], side.query(at, p),
                                                     at.load(side.missing, p), distances[s]);
          Coordinate of_query = at.load(out.of_queries + item * edges.dim, p) + own.first;
          if (side.kept != nullptr) of_query = each_product(of_query, at.load(side.kept, p));
          const Coordinate relation = side.load_relation(at, p);
          TwoGradients back =
              M::compose_backward(of_query, at.load(side.given, p), relation, side.inverse);
          of_given[s] = back.first;
          of_missing[s] = own.second;
          if (M::kHasRelations) {
            penalty += penalise(relation, 1, back.second);
            at.store(out.of_relations + item * edges.dim, p, back.second);
          }
        }
        for (int s = 0; s < 2; ++s) {
          Coordinate of_end = of_given[s] + of_missing[1 - s];
          penalty += penalise(at.load(sides[s].given, p), 2, of_end);
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
                                 const EdgeSide<kModel>& side) const {
    if constexpr (kModel != EdgeModel::kTransEL2) return 0;
    typename Lanes::template Var<float> squares;
    lanes.each([&](int lane) {
      float sum = 0;
      for (int64_t p = lane; p < at.count(); p += Lanes::kLanes) {
        sum += M::part(side.query(at, p), at.load(side.missing, p));
      }
      squares[lane] = sum;
    });
    return std::sqrt(lanes.sum(squares));
  }

  /// Returns `times` the penalty of `value`, and adds its gradient.
  LSM_HOST_DEVICE float penalise(const Coordinate& value, float times, Coordinate& gradient) const {
    if (out.penalty == Penalty::kNone) return 0;
    const float weight = times * out.weight;
    if (out.penalty == Penalty::kComplex) {
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
