// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"

namespace lsm {

/// Remainders of one divisor by a multiplication: a GPU has no instruction that divides 64 bits,
/// and takes about a hundred for it.
class Modulus {
 public:
  Modulus() = default;
  /// `divisor`: at least 1.
  LSM_HOST_DEVICE explicit Modulus(uint64_t divisor)
      : divisor_(divisor), reciprocal_(~uint64_t{0} / divisor) {}

  /// x mod divisor. The reciprocal, 2^64 / divisor, is too small by at most one, so the quotient
  /// is, too.
  LSM_HOST_DEVICE uint64_t operator()(uint64_t x) const {
    const auto product = static_cast<unsigned __int128>(x) * reciprocal_;
    const uint64_t rest = x - static_cast<uint64_t>(product >> 64) * divisor_;
    return rest < divisor_ ? rest : rest - divisor_;
  }

 private:
  uint64_t divisor_ = 1;
  uint64_t reciprocal_ = ~uint64_t{0};
};

}  // namespace lsm
