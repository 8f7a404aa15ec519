// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Models of edges: an operator makes queries of entities and relations, and a comparator scores
// queries against entities. lsm/embed/models has both in torch.
#pragma once

#include <cstdint>

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

/// The score of a query and an entity.
enum class Comparator : uint8_t {
  kDot,        // inner product
  kManhattan,  // negative sum of absolute differences
  kEuclidean,  // negative Euclidean distance
  kModulus,    // negative sum of moduli of complex differences
};

struct EdgeModel {
  Operator query;
  Comparator score;

  bool operator==(const EdgeModel&) const = default;
};

}  // namespace lsm
