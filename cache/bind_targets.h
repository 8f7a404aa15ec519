// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Reads the targets of a replay. Included by bind*.cpp files only.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <vector>

#include "cache/row_targets.h"
#include "kernels/bind_tensor.h"

namespace lsm {

/// The lists of `targets`: tuples of host tensors (row_of, rows, place), which must stay alive;
/// empty for None. `rows` may also be memory of GPU `device`, if that is not negative.
inline std::vector<RowTargets> row_targets(const pybind11::object& targets, int64_t row_bytes,
                                           int device = -1) {
  std::vector<RowTargets> lists;
  if (targets.is_none()) return lists;
  for (const pybind11::handle& each : targets) {
    const auto [row_of, rows, place] = each.cast<std::array<pybind11::object, 3>>();
    const auto wanted = rows.cast<TensorView>();
    const auto memory = wanted.as_bytes_on(wanted.on_host ? -1 : device, "targets, rows");
    const auto num_bytes = static_cast<int64_t>(memory.size());
    lists.push_back({row_of.cast<TensorView>().as<const int32_t>("targets, row_of"), memory.data(),
                     row_bytes == 0 ? INT64_MAX : num_bytes / row_bytes,
                     place.cast<TensorView>().as<const int32_t>("targets, place")});
  }
  return lists;
}

}  // namespace lsm
