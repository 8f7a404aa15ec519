// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LADIES (Zou et al., "Layer-dependent importance sampling", NeurIPS 2019): a hop samples nodes for
// all its destinations together, with probabilities proportional to the squared column norms of the
// row-normalised adjacency of the destinations. Masses are integers, so their sums do not depend on
// the order.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/core/macros.h"

namespace lsm {

/// An in-neighbour of a hop's destinations.
struct LayerCandidate {
  int64_t id;
  uint64_t mass;     // the sum of edge_mass() over its edges
  int64_t is_known;  // in the batch already
};

/// Fractional bits of masses in a hop of `num_destinations`. The sum of masses stays below 2^62.
inline int mass_shift(int64_t num_destinations) {
  return 61 - std::bit_width(static_cast<uint64_t>(num_destinations));
}

/// The share of an edge into a node of `degree` in-edges in the squared norm of its source's
/// column: 1 / degree^2. Parallel edges count separately.
LSM_HOST_DEVICE inline uint64_t edge_mass(uint32_t degree, int shift) {
  const uint64_t mass = (uint64_t{1} << shift) / (uint64_t{degree} * degree);
  return mass > 0 ? mass : 1;
}

/// Samples `count` candidates one after the other without replacement, weighted by mass, and writes
/// the coefficient of every candidate's edges: 0 for unused ones. Without `debias`: 1 / mass for
/// sampled and known candidates, with rows to be normalised. `debias`: known candidates have
/// coefficient 1 and only the others are sampled, with the coefficients that Chen et al.
/// ("Calibrate and debias layer-wise sampling", TMLR 2023, section 5) derive for draws without
/// replacement; they apply to the edges of the row-normalised adjacency, whose expectation then is
/// that adjacency. The result does not depend on the order of the candidates.
void choose_layer(std::span<const LayerCandidate> candidates, int64_t count, uint64_t key,
                  uint32_t hop, bool debias, std::span<double> coefficients);

}  // namespace lsm
