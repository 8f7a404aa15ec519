// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Operators and comparators for one coordinate, and the models that are made of them. A new model
// is a functor here, its name in edge_model.h, and an entry of EdgeModels.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/embed/edge_model.h"

namespace lsm {

/// A complex number, or a float of a real model.
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
/// The sign of a - b: 1, -1, or 0. Two comparisons that give floats, without a choice.
LSM_HOST_DEVICE inline float sign_of_difference(float a, float b) {
  return static_cast<float>(a > b) - static_cast<float>(a < b);
}
/// 1 / sqrt(square), in one instruction of a GPU, to 2 units in the last place. Of squares below
/// the smallest normal number: that number's, so that the product with 0 is 0.
LSM_HOST_DEVICE inline float inverse_root(float square) {
  constexpr float kTiny = FLT_MIN;
  const float value = square > kTiny ? square : kTiny;
#if defined(__CUDA_ARCH__) && !LSM_EMULATED_GPU
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(value));
  return root;
#else
  return 1 / std::sqrt(value);
#endif
}

/// Loads and stores coordinate p of a row.
template <bool kIsComplex>
struct Coordinates {
  int64_t dim;

  LSM_HOST_DEVICE int64_t count() const { return kIsComplex ? dim / 2 : dim; }
  LSM_HOST_DEVICE Coordinate load(const float* row, int64_t p) const {
    return {row[p], kIsComplex ? row[p + dim / 2] : 0.0f};
  }
  /// Coordinate p of a column of a matrix whose rows have `stride` floats.
  LSM_HOST_DEVICE Coordinate load_column(const float* column, int64_t p, int64_t stride) const {
    return {column[p * stride], kIsComplex ? column[(p + dim / 2) * stride] : 0.0f};
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

// Operators. compose(): the query of an entity and a relation. backward(): gradients of both, given
// that of the query.

struct Identity {
  static constexpr Operator kOperator = Operator::kIdentity;
  static constexpr bool kIsComplex = false;
  static constexpr bool kHasRelations = false;

  LSM_HOST_DEVICE static Coordinate compose(const Coordinate& entity, const Coordinate&, bool) {
    return entity;
  }
  LSM_HOST_DEVICE static TwoGradients backward(const Coordinate& gradient, const Coordinate&,
                                               const Coordinate&, bool) {
    return {gradient, {0, 0}};
  }
};

struct ElementProduct {
  static constexpr Operator kOperator = Operator::kElementProduct;
  static constexpr bool kIsComplex = false;
  static constexpr bool kHasRelations = true;

  LSM_HOST_DEVICE static Coordinate compose(const Coordinate& entity, const Coordinate& relation,
                                            bool) {
    return each_product(entity, relation);
  }
  LSM_HOST_DEVICE static TwoGradients backward(const Coordinate& gradient, const Coordinate& entity,
                                               const Coordinate& relation, bool) {
    return {each_product(gradient, relation), each_product(gradient, entity)};
  }
};

struct Translation {
  static constexpr Operator kOperator = Operator::kTranslation;
  static constexpr bool kIsComplex = false;
  static constexpr bool kHasRelations = true;

  LSM_HOST_DEVICE static Coordinate compose(const Coordinate& entity, const Coordinate& relation,
                                            bool inverse) {
    return inverse ? entity - relation : entity + relation;
  }
  LSM_HOST_DEVICE static TwoGradients backward(const Coordinate& gradient, const Coordinate&,
                                               const Coordinate&, bool inverse) {
    return {gradient, inverse ? gradient * -1.0f : gradient};
  }
};

struct ComplexProduct {
  static constexpr Operator kOperator = Operator::kComplexProduct;
  static constexpr bool kIsComplex = true;
  static constexpr bool kHasRelations = true;

  LSM_HOST_DEVICE static Coordinate compose(const Coordinate& entity, const Coordinate& relation,
                                            bool inverse) {
    return complex_product(entity, inverse ? conjugate(relation) : relation);
  }
  LSM_HOST_DEVICE static TwoGradients backward(const Coordinate& gradient, const Coordinate& entity,
                                               const Coordinate& relation, bool inverse) {
    return {complex_product(gradient, inverse ? relation : conjugate(relation)),
            inverse ? complex_product(entity, conjugate(gradient))
                    : complex_product(gradient, conjugate(entity))};
  }
};

/// The relation divided by its modulus, where RotatE stores a phase.
struct Rotation {
  static constexpr Operator kOperator = Operator::kRotation;
  static constexpr bool kIsComplex = true;
  static constexpr bool kHasRelations = true;

  LSM_HOST_DEVICE static Coordinate compose(const Coordinate& entity, const Coordinate& relation,
                                            bool inverse) {
    return ComplexProduct::compose(entity, unit(relation), inverse);
  }
  LSM_HOST_DEVICE static TwoGradients backward(const Coordinate& gradient, const Coordinate& entity,
                                               const Coordinate& relation, bool inverse) {
    const Coordinate turn = unit(relation);
    const TwoGradients of = ComplexProduct::backward(gradient, entity, turn, inverse);
    // Only the component of the gradient orthogonal to the relation turns it.
    const float along = turn.re * of.second.re + turn.im * of.second.im;
    return {of.first, (of.second - turn * along) * (1 / modulus(relation))};
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

// Comparators. part(): a coordinate's part of the score; score(): the score, given the sum of
// parts. backward(): gradients of query and entity, given that of the score and, for those that
// need it, the distance.

struct DotProduct {
  static constexpr Comparator kComparator = Comparator::kDot;
  static constexpr bool kIsComplex = false;
  static constexpr bool kNeedsDistance = false;

  LSM_HOST_DEVICE static float part(const Coordinate& query, const Coordinate& entity) {
    return query.re * entity.re + query.im * entity.im;
  }
  LSM_HOST_DEVICE static float score(float parts) { return parts; }
  LSM_HOST_DEVICE static TwoGradients backward(float gradient, const Coordinate& query,
                                               const Coordinate& entity, float) {
    return {entity * gradient, query * gradient};
  }
};

struct ManhattanDistance {
  static constexpr Comparator kComparator = Comparator::kManhattan;
  static constexpr bool kIsComplex = false;
  static constexpr bool kNeedsDistance = false;

  LSM_HOST_DEVICE static float part(const Coordinate& query, const Coordinate& entity) {
    return std::abs((query - entity).re);
  }
  LSM_HOST_DEVICE static float score(float parts) { return -parts; }
  LSM_HOST_DEVICE static TwoGradients backward(float gradient, const Coordinate& query,
                                               const Coordinate& entity, float) {
    const Coordinate pull{sign_of_difference(query.re, entity.re) * gradient, 0};
    return {pull * -1.0f, pull};
  }
};

struct EuclideanDistance {
  static constexpr Comparator kComparator = Comparator::kEuclidean;
  static constexpr bool kIsComplex = false;
  static constexpr bool kNeedsDistance = true;

  LSM_HOST_DEVICE static float part(const Coordinate& query, const Coordinate& entity) {
    return (query - entity).square();
  }
  LSM_HOST_DEVICE static float score(float parts) { return -std::sqrt(parts); }
  LSM_HOST_DEVICE static TwoGradients backward(float gradient, const Coordinate& query,
                                               const Coordinate& entity, float distance) {
    if (!(distance > 0)) return {};  // equal ends
    const Coordinate pull = (query - entity) * (gradient / distance);
    return {pull * -1.0f, pull};
  }
};

struct ModulusDistance {
  static constexpr Comparator kComparator = Comparator::kModulus;
  static constexpr bool kIsComplex = true;
  static constexpr bool kNeedsDistance = false;

  LSM_HOST_DEVICE static float part(const Coordinate& query, const Coordinate& entity) {
    const float square = (query - entity).square();
    return square * inverse_root(square);
  }
  LSM_HOST_DEVICE static float score(float parts) { return -parts; }
  LSM_HOST_DEVICE static TwoGradients backward(float gradient, const Coordinate& query,
                                               const Coordinate& entity, float) {
    const Coordinate apart = query - entity;
    const Coordinate pull = apart * (gradient * inverse_root(apart.square()));
    return {pull * -1.0f, pull};
  }
};

template <class Query, class Score>
struct ModelFormulas {
  using Operator = Query;
  using Comparator = Score;
  static constexpr EdgeModel kModel{Query::kOperator, Score::kComparator};
  static constexpr bool kIsComplex = Query::kIsComplex || Score::kIsComplex;
};

template <class... Members>
struct TypeList {};

/// The models with kernels on a GPU.
using EdgeModels = TypeList<
    ModelFormulas<Identity, DotProduct>, ModelFormulas<ElementProduct, DotProduct>,
    ModelFormulas<ComplexProduct, DotProduct>, ModelFormulas<Translation, ManhattanDistance>,
    ModelFormulas<Translation, EuclideanDistance>, ModelFormulas<Rotation, ModulusDistance>>;

/// The comparators that no matrix product computes. The others go to torch's.
using ElementComparators = TypeList<ManhattanDistance, ModulusDistance>;

}  // namespace lsm
