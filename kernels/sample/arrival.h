// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The arrival of an edge: exponentially distributed, at the rate of its weight. Of operations that
// IEEE 754 rounds alike everywhere, so a GPU has the bits of the host; the logarithms of libraries
// differ in the last bit. Compiled without contraction of products and sums.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/core/macros.h"

namespace lsm {

/// -log((word + 0.5) / 2^32) / weight, within a few units in the last place. weight > 0.
LSM_HOST_DEVICE inline double arrival(uint32_t word, float weight) {
  constexpr uint64_t kOne = 0x3FF0000000000000, kRootOfHalf = 0x3FE6A09E667F3BCD;  // as bits
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  constexpr double kLogOfTwo = 0.69314718055994530942;
  const double uniform = (word + 0.5) * 0x1p-32;
  uint64_t bits = 0;
  std::memcpy(&bits, &uniform, sizeof(bits));
  // uniform = factor * 2^exponent, with a factor between the roots of 1/2 and 2.
  bits += kOne - kRootOfHalf;
  const double exponent = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  bits = (bits & kFraction) + kRootOfHalf;
  double factor = 0;
  std::memcpy(&factor, &bits, sizeof(factor));
  // log(factor) = 2 artanh(x), as a series in x^2 < 0.03.
  const double x = (factor - 1) / (factor + 1);
  const double square = x * x;
  const double fourth = square * square;
  double even = 1.0 / 21, odd = 1.0 / 19;  // two chains of half the length
  for (int n = 17; n > 0; n -= 4) {
    even = even * fourth + 1.0 / n;
    if (n > 2) odd = odd * fourth + 1.0 / (n - 2);
  }
  return -(exponent * kLogOfTwo + 2 * x * (even + odd * square)) / weight;
}

}  // namespace lsm
