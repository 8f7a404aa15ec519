// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the functions of link prediction.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/links/pairs.h"

namespace py = pybind11;

namespace {

/// [2, pairs] int64: rows, columns.
py::array_t<int64_t> find_pairs(const lsm::TensorView& ids, const lsm::TensorView& wanted) {
  const auto all = ids.as<const int64_t>("ids");
  const auto of_rows = wanted.as<const int64_t>("wanted");
  lsm::IdPairs pairs;
  {
    py::gil_scoped_release release;
    pairs = lsm::find_pairs(all, of_rows);
  }
  py::array_t<int64_t> result({size_t{2}, pairs.rows.size()});
  std::copy(pairs.rows.begin(), pairs.rows.end(), result.mutable_data());
  std::copy(pairs.columns.begin(), pairs.columns.end(), result.mutable_data() + pairs.rows.size());
  return result;
}

void mask_equal(const lsm::TensorView& scores, const lsm::TensorView& ids,
                const lsm::TensorView& wanted) {
  const auto all = ids.as<const int64_t>("ids");
  const auto of_rows = wanted.as<const int64_t>("wanted");
  const auto floats = scores.as<float>("scores");
  lsm::check_argument(
      scores.num_dims == 2 && scores.shape[0] == wanted.shape[0] && scores.shape[1] == ids.shape[0],
      "scores: expected [", wanted.shape[0], ", ", ids.shape[0], "]");
  py::gil_scoped_release release;
  lsm::mask_equal(all, of_rows, floats.data());
}

}  // namespace

namespace lsm {

void bind_links(py::module_& module) {
  module.def("find_pairs", &::find_pairs, py::arg("ids"), py::arg("wanted"),
             "[2, n] int64: rows and columns with ids[column] == wanted[row], rows ascending.");
  module.def("mask_equal", &::mask_equal, py::arg("scores"), py::arg("ids"), py::arg("wanted"),
             "Where ids[column] == wanted[row], scores[row, column] = -inf.");
}

}  // namespace lsm
