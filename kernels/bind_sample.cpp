// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports sampling, relabelling and row gathers.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/core/thread_pool.h"
#include "kernels/gather/gather.h"
#include "kernels/sample/unique.h"

namespace py = pybind11;

namespace {

void gather_rows(const lsm::TensorView& source, const lsm::TensorView& ids,
                 const lsm::TensorView& out, lsm::ThreadPool& pool) {
  const auto id_span = ids.as<const int64_t>("ids");
  const auto source_bytes = source.as_bytes("source");
  const auto out_bytes = out.as_bytes("out");
  lsm::check_argument(source.num_dims == 2 && out.num_dims == 2 && ids.num_dims == 1,
                      "expected source [N, dim], ids [n] and out [n, dim]");
  lsm::check_argument(out.dtype == source.dtype && out.shape[1] == source.shape[1],
                      "out: expected rows of ", source.shape[1], " ", to_string(source.dtype),
                      ", got ", out.shape[1], " ", to_string(out.dtype));
  lsm::check_argument(out.shape[0] == ids.shape[0], "out: expected ", ids.shape[0], " rows, got ",
                      out.shape[0]);
  py::gil_scoped_release release;
  lsm::check_ids("ids", id_span, source.shape[0]);
  lsm::gather_rows(source_bytes.data(), source.shape[1] * source.dtype.bytes, id_span,
                   out_bytes.data(), pool);
}

int64_t unique_relabel(const lsm::TensorView& ids, const lsm::TensorView& unique,
                       const lsm::TensorView& inverse) {
  const auto id_span = ids.as<const int64_t>("ids");
  const auto unique_span = unique.as<int64_t>("unique");
  const auto inverse_span = inverse.as<int64_t>("inverse");
  lsm::check_argument(
      unique_span.size() == id_span.size() + 1 && inverse_span.size() == id_span.size(),
      "unique, inverse: expected ", id_span.size() + 1, " and ", id_span.size(), " elements");
  py::gil_scoped_release release;
  return lsm::unique_relabel(id_span, unique_span.data(), inverse_span.data());
}

}  // namespace

namespace lsm {

void bind_sample(py::module_& module) {
  module.def("gather_rows", &::gather_rows, py::arg("source"), py::arg("ids"), py::arg("out"),
             py::arg("pool"));
  module.def("unique_relabel", &::unique_relabel, py::arg("ids"), py::arg("unique"),
             py::arg("inverse"));
}

}  // namespace lsm
