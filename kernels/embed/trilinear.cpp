// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/trilinear.h"

#include <algorithm>

#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int64_t kGrain = 64;  // edges a thread takes at once
constexpr int kLanes = 16;

/// Adds in a fixed order of SIMD lanes: the compiler would leave another sum in scalars.
[[gnu::always_inline]] inline float inner_product(int64_t dim, const float* a, const float* b) {
  float sums[kLanes] = {};
  const int64_t whole = dim - dim % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (int64_t i = whole; i < dim; ++i) sums[i - whole] += a[i] * b[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

// `sign`: the factor of the imaginary part of the relation, -1 for a * b and 1 for a * conj(b).
LSM_VECTOR_CLONES
float make_query(Operator kind, float sign, int64_t dim, const float* __restrict a,
                 const float* __restrict b, const float* __restrict target,
                 float* __restrict query) {
  if (kind == Operator::kIdentity) {
    std::copy_n(a, dim, query);
  } else if (kind == Operator::kElementProduct) {
    for (int64_t i = 0; i < dim; ++i) query[i] = a[i] * b[i];
  } else {
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < half; ++i) {
      const float b_im = sign * b[half + i];
      query[i] = a[i] * b[i] + a[half + i] * b_im;
      query[half + i] = a[half + i] * b[i] - a[i] * b_im;
    }
  }
  return inner_product(dim, query, target);
}

template <bool kAdd>
[[gnu::always_inline]] inline void put(float& to, float value) {
  to = kAdd ? to + value : value;
}

template <bool kAdd>
[[gnu::always_inline]] inline void put_all(Operator kind, float sign, int64_t dim, float factor,
                                           const float* __restrict a, const float* __restrict b,
                                           const float* __restrict target,
                                           const float* __restrict query,
                                           float* __restrict of_query, float* __restrict of_a,
                                           float* __restrict of_target) {
  for (int64_t i = 0; i < dim; ++i) put<kAdd>(of_target[i], factor * query[i]);
  if (kind == Operator::kIdentity) {
    for (int64_t i = 0; i < dim; ++i) put<kAdd>(of_a[i], of_query[i] + factor * target[i]);
  } else if (kind == Operator::kElementProduct) {
    for (int64_t i = 0; i < dim; ++i) {
      const float gradient = of_query[i] + factor * target[i];
      put<kAdd>(of_a[i], gradient * b[i]);
      of_query[i] = gradient * a[i];
    }
  } else {
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < half; ++i) {
      const float g_re = of_query[i] + factor * target[i];
      const float g_im = of_query[half + i] + factor * target[half + i];
      const float b_im = sign * b[half + i];
      put<kAdd>(of_a[i], g_re * b[i] - g_im * b_im);
      put<kAdd>(of_a[half + i], g_im * b[i] + g_re * b_im);
      of_query[i] = g_re * a[i] + g_im * a[half + i];
      of_query[half + i] = sign * (g_re * a[half + i] - g_im * a[i]);
    }
  }
}

/// One edge. `factor`: the gradient of its score.
LSM_VECTOR_CLONES
void put_gradients(bool add, Operator kind, float sign, int64_t dim, float factor, const float* a,
                   const float* b, const float* target, const float* query, float* of_query,
                   float* of_a, float* of_target) {
  if (add) {
    put_all<true>(kind, sign, dim, factor, a, b, target, query, of_query, of_a, of_target);
  } else {
    put_all<false>(kind, sign, dim, factor, a, b, target, query, of_query, of_a, of_target);
  }
}

float sign_of(const EdgeRows& edges) {
  return edges.inverse ? 1.0f : -1.0f;
}

const float* relation_at(const EdgeRows& edges, int64_t at) {
  return edges.query == Operator::kIdentity ? nullptr : edges.relations + at;
}

}  // namespace

bool has_host_kernels(const EdgeModel& model) {
  return model.score == Comparator::kDot &&
         (model.query == Operator::kIdentity || model.query == Operator::kElementProduct ||
          model.query == Operator::kComplexProduct);
}

void make_queries(const EdgeRows& edges, float* queries, float* scores, ThreadPool& pool) {
  pool.parallel_for(edges.num_edges, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * edges.dim;
      scores[i] = make_query(edges.query, sign_of(edges), edges.dim, edges.entities + at,
                             relation_at(edges, at), edges.targets + at, queries + at);
    }
  });
}

void query_gradients(const EdgeRows& edges, const float* queries, const QueryGradients& gradients,
                     ThreadPool& pool) {
  pool.parallel_for(edges.num_edges, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * edges.dim;
      put_gradients(gradients.add, edges.query, sign_of(edges), edges.dim, gradients.of_scores[i],
                    edges.entities + at, relation_at(edges, at), edges.targets + at, queries + at,
                    gradients.of_queries + at, gradients.of_entities + at,
                    gradients.of_targets + at);
    }
  });
}

}  // namespace lsm
