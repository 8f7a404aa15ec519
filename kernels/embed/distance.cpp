// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/distance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kGrain = 8;    // rows a thread takes at once
constexpr int64_t kBlock = 128;  // rows of the other side that stay in the cache meanwhile

/// Rows padded by zeros to whole vectors; each half of a complex row by itself.
class Padded {
 public:
  Padded(Comparator comparator, const float* rows, int64_t count, int64_t dim)
      : parts_(comparator == Comparator::kModulus ? 2 : 1),
        part_(dim / parts_),
        padded_((part_ + kLanes - 1) / kLanes * kLanes),
        floats_(static_cast<size_t>(count * parts_ * padded_)) {
    for (int64_t p = 0; p < count * parts_; ++p) {
      std::copy_n(rows + p * part_, part_, floats_.data() + p * padded_);
    }
  }

  /// Floats of one part of a row.
  int64_t part() const { return padded_; }
  int64_t width() const { return parts_ * padded_; }
  const float* row(int64_t i) const { return floats_.data() + i * width(); }

  /// Writes a padded row as a row without padding.
  void unpad(const float* padded, float* row) const {
    for (int64_t p = 0; p < parts_; ++p) std::copy_n(padded + p * padded_, part_, row + p * part_);
  }

 private:
  int64_t parts_;
  int64_t part_;
  int64_t padded_;
  std::vector<float> floats_;
};

float sum(const float* lane) {
  float total = 0;
  for (int l = 0; l < kLanes; ++l) total += lane[l];
  return total;
}

LSM_VECTOR_CLONES
void manhattan(const float* query, const float* entities, int64_t count, int64_t part,
               float* scores) {
  for (int64_t j = 0; j < count; ++j, entities += part) {
    alignas(64) float lane[kLanes] = {};
    for (int64_t i = 0; i < part; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) lane[l] += std::abs(query[i + l] - entities[i + l]);
    }
    scores[j] = -sum(lane);
  }
}

LSM_VECTOR_CLONES
void modulus(const float* query, const float* entities, int64_t count, int64_t part,
             float* scores) {
  for (int64_t j = 0; j < count; ++j, entities += 2 * part) {
    alignas(64) float lane[kLanes] = {};
    for (int64_t i = 0; i < part; i += kLanes) {
      for (int l = 0; l < kLanes; ++l) {
        const float re = query[i + l] - entities[i + l];
        const float im = query[part + i + l] - entities[part + i + l];
        lane[l] += std::sqrt(re * re + im * im);
      }
    }
    scores[j] = -sum(lane);
  }
}

/// Adds the gradient of `row`, given the `gradient` of its scores with `others`, `stride` apart.
LSM_VECTOR_CLONES
void manhattan_backward(const float* row, const float* others, int64_t count, int64_t part,
                        const float* gradient, int64_t stride, float* of_row) {
  for (int64_t j = 0; j < count; ++j, others += part) {
    const float g = gradient[j * stride];
    for (int64_t i = 0; i < part; ++i) {
      const float difference = others[i] - row[i];
      of_row[i] += difference > 0 ? g : difference < 0 ? -g : 0.0f;
    }
  }
}

LSM_VECTOR_CLONES
void modulus_backward(const float* row, const float* others, int64_t count, int64_t part,
                      const float* gradient, int64_t stride, float* of_row) {
  for (int64_t j = 0; j < count; ++j, others += 2 * part) {
    const float g = gradient[j * stride];
    for (int64_t i = 0; i < part; ++i) {
      const float re = others[i] - row[i];
      const float im = others[part + i] - row[part + i];
      const float square = re * re + im * im;
      const float factor = square > 0 ? g / std::sqrt(square) : 0.0f;
      of_row[i] += re * factor;
      of_row[part + i] += im * factor;
    }
  }
}

/// Writes the gradients of `rows`. The gradient of score (i, j) is at i * row_stride + j * stride.
void backward(Comparator comparator, const Padded& rows, int64_t num_rows, const Padded& others,
              int64_t num_others, const float* gradient, int64_t row_stride, int64_t stride,
              float* out, int64_t dim, ThreadPool& pool) {
  const auto add = comparator == Comparator::kManhattan ? &manhattan_backward : &modulus_backward;
  pool.parallel_for(num_rows, kGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> of_rows(static_cast<size_t>((end - begin) * rows.width()));
    for (int64_t j = 0; j < num_others; j += kBlock) {
      const int64_t count = std::min(kBlock, num_others - j);
      for (int64_t i = begin; i < end; ++i) {
        add(rows.row(i), others.row(j), count, rows.part(), gradient + i * row_stride + j * stride,
            stride, of_rows.data() + (i - begin) * rows.width());
      }
    }
    for (int64_t i = begin; i < end; ++i) {
      rows.unpad(of_rows.data() + (i - begin) * rows.width(), out + i * dim);
    }
  });
}

}  // namespace

void distance_scores(Comparator comparator, const QueriesAndEntities& rows, float* scores,
                     ThreadPool& pool) {
  const Padded queries(comparator, rows.queries, rows.num_queries, rows.dim);
  const Padded entities(comparator, rows.entities, rows.num_entities, rows.dim);
  const auto score = comparator == Comparator::kManhattan ? &manhattan : &modulus;
  pool.parallel_for(rows.num_queries, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t j = 0; j < rows.num_entities; j += kBlock) {
      const int64_t count = std::min(kBlock, rows.num_entities - j);
      for (int64_t i = begin; i < end; ++i) {
        score(queries.row(i), entities.row(j), count, queries.part(),
              scores + i * rows.num_entities + j);
      }
    }
  });
}

void distance_scores_backward(Comparator comparator, const QueriesAndEntities& rows,
                              const float* gradient, float* of_queries, float* of_entities,
                              ThreadPool& pool) {
  const Padded queries(comparator, rows.queries, rows.num_queries, rows.dim);
  const Padded entities(comparator, rows.entities, rows.num_entities, rows.dim);
  backward(comparator, queries, rows.num_queries, entities, rows.num_entities, gradient,
           rows.num_entities, 1, of_queries, rows.dim, pool);
  backward(comparator, entities, rows.num_entities, queries, rows.num_queries, gradient, 1,
           rows.num_entities, of_entities, rows.dim, pool);
}

}  // namespace lsm
