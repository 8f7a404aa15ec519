// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Models of edges: an operator makes queries of entities and relations, and a comparator scores
// queries against entities. lsm/embed/models has both in torch.
#pragma once

#include <cstdint>
#include <utility>

namespace lsm {

/// The query of an entity a and a relation b. Complex rows have first all real parts, then all
/// imaginary parts. The inverse of a complex operator takes conj(b), that of kTranslation -b.
enum class Operator : uint8_t {
  kIdentity,        // a
  kElementProduct,  // a * b, float by float
  kComplexProduct,  // a * b
  kTranslation,     // a + b
  kRotation,        // a * b / |b|
};

/// Their names in Python.
inline constexpr std::pair<const char*, Operator> kOperators[] = {
    {"IDENTITY", Operator::kIdentity},
    {"ELEMENT_PRODUCT", Operator::kElementProduct},
    {"COMPLEX_PRODUCT", Operator::kComplexProduct},
    {"TRANSLATION", Operator::kTranslation},
    {"ROTATION", Operator::kRotation},
};

/// The score of a query and an entity.
enum class Comparator : uint8_t {
  kDot,        // inner product
  kManhattan,  // negative sum of absolute differences
  kEuclidean,  // negative Euclidean distance
  kModulus,    // negative sum of moduli of complex differences
};

/// Their names in Python.
inline constexpr std::pair<const char*, Comparator> kComparators[] = {
    {"DOT", Comparator::kDot},
    {"MANHATTAN", Comparator::kManhattan},
    {"EUCLIDEAN", Comparator::kEuclidean},
    {"MODULUS", Comparator::kModulus},
};

struct EdgeModel {
  Operator query;
  Comparator score;

  bool operator==(const EdgeModel&) const = default;
};

}  // namespace lsm
