// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The form in which Python gives TypedSeeds. Included by bind.cpp files only.
#pragma once

#include <pybind11/stl.h>

#include <optional>
#include <tuple>

#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/sample/typed_sampler.h"

namespace lsm {

/// A type's number, ids, and times.
using BoundSeeds = std::tuple<int, TensorView, std::optional<TensorView>>;

/// A view of `seeds`.
inline TypedSeeds typed_seeds(const BoundSeeds& seeds) {
  const auto& [type, ids, times] = seeds;
  check_argument(ids.num_dims == 1, "seeds: expected [n], got ", ids.num_dims, " dims");
  TypedSeeds typed{type, ids.as<const int64_t>("seeds"), {}};
  if (times) typed.times = times->as<const int64_t>("seed times");
  return typed;
}

}  // namespace lsm
