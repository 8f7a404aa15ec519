// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/embed/complex_product.h"

#include "kernels/core/vector_clones.h"

namespace lsm {
namespace {

constexpr int64_t kGrain = 64;

// `sign`: the factor of the imaginary part of b, -1 for a * b and 1 for a * conj(b).
LSM_VECTOR_CLONES
void multiply(int64_t half, float sign, const float* __restrict a, const float* __restrict b,
              float* __restrict out) {
  for (int64_t i = 0; i < half; ++i) {
    const float b_im = sign * b[half + i];
    out[i] = a[i] * b[i] + a[half + i] * b_im;
    out[half + i] = a[half + i] * b[i] - a[i] * b_im;
  }
}

LSM_VECTOR_CLONES
void multiply_backward(int64_t half, float sign, const float* __restrict gradient,
                       const float* __restrict a, const float* __restrict b, float* __restrict of_a,
                       float* __restrict of_b) {
  for (int64_t i = 0; i < half; ++i) {
    const float g_re = gradient[i];
    const float g_im = gradient[half + i];
    const float b_im = sign * b[half + i];
    of_a[i] = g_re * b[i] - g_im * b_im;
    of_a[half + i] = g_im * b[i] + g_re * b_im;
    of_b[i] = g_re * a[i] + g_im * a[half + i];
    of_b[half + i] = sign * (g_re * a[half + i] - g_im * a[i]);
  }
}

}  // namespace

void complex_product(const ComplexRows& shape, const float* a, const float* b, float* out,
                     ThreadPool& pool) {
  pool.parallel_for(shape.rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * shape.dim; at < end * shape.dim; at += shape.dim) {
      multiply(shape.dim / 2, shape.conjugate ? 1.0f : -1.0f, a + at, b + at, out + at);
    }
  });
}

void complex_product_backward(const ComplexRows& shape, const float* gradient, const float* a,
                              const float* b, float* of_a, float* of_b, ThreadPool& pool) {
  pool.parallel_for(shape.rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * shape.dim; at < end * shape.dim; at += shape.dim) {
      multiply_backward(shape.dim / 2, shape.conjugate ? 1.0f : -1.0f, gradient + at, a + at,
                        b + at, of_a + at, of_b + at);
    }
  });
}

}  // namespace lsm
