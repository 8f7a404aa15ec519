// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Products of rows of complex numbers. A row has first all real parts, then all imaginary parts.
#pragma once

#include <cstdint>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// `rows` rows of `dim` floats, dim / 2 complex numbers.
struct ComplexRows {
  int64_t rows;
  int64_t dim;
  bool conjugate;  // of the second factor
};

/// Writes a * b, or a * conj(b), to `out`.
void complex_product(const ComplexRows& shape, const float* a, const float* b, float* out,
                     ThreadPool& pool);

/// Writes the gradients of a and b, given that of the product.
void complex_product_backward(const ComplexRows& shape, const float* gradient, const float* a,
                              const float* b, float* of_a, float* of_b, ThreadPool& pool);

}  // namespace lsm
