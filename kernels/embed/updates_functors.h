// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Sums of sorted gradients. Sorted gradients are cut into windows of kWindow. The gradients of a
// row in one window are a piece, which a warp adds up in order. A row in one window is updated at
// once. Another warp adds the pieces of a longer row in order. The order of all additions
// depends on the gradients alone, and no atomics are needed.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/embed/gpu_updates.h"

namespace lsm {

/// Columns of a lane that are added up at once.
inline constexpr int kSumColumns = 4;
/// Terms loaded at once.
inline constexpr int kSumAhead = 4;

template <class Lanes>
struct ColumnSums {
  typename Lanes::template Var<float> of[kSumColumns];

  static constexpr int64_t kWidth = int64_t{kSumColumns} * Lanes::kLanes;
};

/// Adds the columns [first, first + kWidth) of rows term(0), .., term(count - 1), in this order.
template <class Lanes, class Term>
LSM_HOST_DEVICE void add_columns(const Lanes& lanes, int64_t first, int64_t dim, int64_t count,
                                 const Term& term, ColumnSums<Lanes>& sums) {
  lanes.each([&](int lane) {
    float total[kSumColumns] = {};
    for (int64_t i = 0; i < count; i += kSumAhead) {
      float loaded[kSumAhead][kSumColumns] = {};
      for (int k = 0; k < kSumAhead; ++k) {
        if (i + k >= count) break;
        const float* const row = term(i + k);
        for (int q = 0; q < kSumColumns; ++q) {
          const int64_t column = first + lane + int64_t{q} * Lanes::kLanes;
          if (column < dim) loaded[k][q] = row[column];
        }
      }
      for (int k = 0; k < kSumAhead; ++k) {
        for (int q = 0; q < kSumColumns; ++q) total[q] += loaded[k][q];
      }
    }
    for (int q = 0; q < kSumColumns; ++q) sums.of[q][lane] = total[q];
  });
}

/// Calls use(lane, column, sum) for every column of the sum of rows term(0), .., term(count - 1).
template <class Lanes, class Term, class Use>
LSM_HOST_DEVICE void each_sum(const Lanes& lanes, int64_t dim, int64_t count, const Term& term,
                              const Use& use) {
  for (int64_t first = 0; first < dim; first += ColumnSums<Lanes>::kWidth) {
    ColumnSums<Lanes> sums;
    add_columns(lanes, first, dim, count, term, sums);
    lanes.each([&](int lane) {
      for (int q = 0; q < kSumColumns; ++q) {
        const int64_t column = first + lane + int64_t{q} * Lanes::kLanes;
        if (column < dim) use(lane, column, sums.of[q][lane]);
      }
    });
  }
}

/// Stores sums.
struct StoreSums {
  float* out;
  int64_t dim;

  template <class Lanes, class Term>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t row, int64_t count,
                                  const Term& term) const {
    each_sum(lanes, dim, count, term,
             [&](int, int64_t column, float sum) { out[row * dim + column] = sum; });
  }
};

/// Updates rows by Adagrad, with a sum of squares per float, or one of mean squares per row.
struct AdagradStep {
  AdagradTable table;

  template <class Lanes, class Term>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t number, int64_t count,
                                  const Term& term) const {
    const int64_t dim = table.dim;
    float* const row = table.rows + number * table.width;
    float* const state = row + dim;
    if (table.width == 2 * dim) {
      each_sum(lanes, dim, count, term, [&](int, int64_t column, float sum) {
        const float squares = state[column] + sum * sum;
        state[column] = squares;
        row[column] -= table.lr * sum / (std::sqrt(squares) + table.eps);
      });
      return;
    }
    typename Lanes::template Var<float> squares;
    each_sum(lanes, dim, count, term,
             [&](int lane, int64_t, float sum) { squares[lane] += sum * sum; });
    const float mean = lanes.sum(squares) / static_cast<float>(dim);
    const float after = *state + mean;
    const float factor = table.lr / (std::sqrt(after) + table.eps);
    // Adds the sums once more: registers have no room for a row of any length.
    each_sum(lanes, dim, count, term,
             [&](int, int64_t column, float sum) { row[column] -= factor * sum; });
    lanes.each([&](int lane) {
      if (lane == 0) *state = after;
    });
  }
};

/// One gradient per warp: the warp of the first of a piece adds the piece up.
template <class Use>
struct SumPieces {
  SortedGradients gradients;
  Use use;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t first) const {
    constexpr int64_t kWindow = SortedGradients::kWindow;
    const SortedGradients& g = gradients;
    const int32_t row = g.rows[first];
    const bool is_continued = first > 0 && g.rows[first - 1] == row;
    if (is_continued && first % kWindow != 0) return;
    const int64_t window = first / kWindow;
    const int64_t limit = (window + 1) * kWindow < g.count ? (window + 1) * kWindow : g.count;
    int64_t end = limit;
    for (int64_t at = first + 1; at < limit; at += Lanes::kLanes) {
      typename Lanes::template Var<bool> differs;
      lanes.each([&](int lane) { differs[lane] = at + lane < limit && g.rows[at + lane] != row; });
      const int found = lanes.first(differs);
      if (found < 0) continue;
      end = at + found;
      break;
    }
    const bool continues = end < g.count && g.rows[end] == row;
    const auto term = [&](int64_t i) { return g.values + g.places[first + i] * g.dim; };
    if (!is_continued && !continues) {
      use(lanes, row, end - first, term);
      return;
    }
    // A piece that another precedes is at the start of its window; else it is at the end.
    const int64_t place = 2 * window + (is_continued ? 0 : 1);
    StoreSums{g.partial, g.dim}(lanes, place, end - first, term);
  }
};

/// One window per warp: adds up the pieces of the row that begins in it and continues behind it.
template <class Use>
struct SumLongRows {
  SortedGradients gradients;
  Use use;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t window) const {
    constexpr int64_t kWindow = SortedGradients::kWindow;
    const SortedGradients& g = gradients;
    const int64_t end = (window + 1) * kWindow;
    if (end >= g.count) return;
    const int32_t row = g.rows[end - 1];
    if (g.rows[end] != row) return;
    const int64_t begin = window * kWindow;
    if (begin > 0 && g.rows[begin] == row && g.rows[begin - 1] == row) return;
    int64_t last = window + 1;  // the last window with a piece of the row
    while ((last + 1) * kWindow < g.count && g.rows[(last + 1) * kWindow] == row &&
           g.rows[(last + 1) * kWindow - 1] == row) {
      ++last;
    }
    use(lanes, row, last - window + 1, [&](int64_t i) {
      return g.partial + (i == 0 ? 2 * window + 1 : 2 * (window + i)) * g.dim;
    });
  }
};

}  // namespace lsm
