// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the functions of inference of all nodes.
#include <pybind11/pybind11.h>

#include <memory>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/inference/interval_edges.h"

namespace py = pybind11;

namespace {

std::unique_ptr<lsm::IntervalEdges> interval_edges(lsm::ThreadPool& pool,
                                                   const lsm::TensorView& indptr,
                                                   const lsm::TensorView& indices, int64_t first,
                                                   int64_t last, int64_t num_sources,
                                                   int64_t batch_rows, bool one_loop) {
  const auto bounds = indptr.as<const int64_t>("indptr");
  const auto make = [&](auto ids) {
    py::gil_scoped_release release;
    return std::make_unique<lsm::IntervalEdges>(pool, bounds, ids, first, last, num_sources,
                                                batch_rows, one_loop);
  };
  if (indices.dtype == lsm::dtype_of<int32_t>()) {
    return make(indices.as<const int32_t>("indices"));
  }
  return make(indices.as<const int64_t>("indices"));
}

void reduce(const lsm::IntervalEdges& edges, lsm::ThreadPool& pool, int64_t batch,
            const lsm::TensorView& rows, lsm::Reduction reduction, const lsm::TensorView& reduced) {
  const auto sources = rows.as<const float>("rows");
  const auto sums = reduced.as<float>("reduced");
  lsm::check_argument(
      rows.num_dims == 2 && reduced.num_dims == 2 && rows.shape[1] == reduced.shape[1],
      "rows, reduced: expected [n, width] of one width");
  const int64_t width = rows.shape[1];
  py::gil_scoped_release release;
  edges.reduce(pool, batch, sources, width, reduction, sums);
}

void attend(const lsm::IntervalEdges& edges, lsm::ThreadPool& pool, int64_t batch,
            const lsm::TensorView& rows, const lsm::TensorView& own, int64_t heads, float slope,
            const lsm::TensorView& weights, const lsm::TensorView& reduced) {
  const auto sources = rows.as<const float>("rows");
  const auto destinations = own.as<const float>("own");
  const auto of_scores = weights.as<const float>("weights");
  const auto sums = reduced.as<float>("reduced");
  lsm::check_argument(rows.num_dims == 2 && own.num_dims == 2 && heads > 0,
                      "rows, own: expected [n, width], and heads");
  const int64_t num_values = rows.shape[1] - (of_scores.empty() ? heads : 0);
  lsm::check_argument(num_values % heads == 0, "rows: expected as many values for each head");
  const lsm::Attention attention{heads, num_values / heads, slope, of_scores};
  py::gil_scoped_release release;
  edges.attend(pool, batch, sources, destinations, own.shape[1], attention, sums);
}

}  // namespace

namespace lsm {

void bind_inference(py::module_& module) {
  py::enum_<Reduction>(module, "Reduction")
      .value("sum", Reduction::kSum)
      .value("max", Reduction::kMax);
  py::class_<IntervalEdges>(module, "IntervalEdges")
      .def(py::init(&interval_edges), py::arg("pool"), py::arg("indptr"), py::arg("indices"),
           py::arg("first"), py::arg("last"), py::arg("num_sources"), py::arg("batch_rows"),
           py::arg("one_loop"))
      .def_property_readonly("num_edges", &IntervalEdges::num_edges)
      .def_property_readonly("num_batches", &IntervalEdges::num_batches)
      .def("reduce", &reduce, py::arg("pool"), py::arg("batch"), py::arg("rows"),
           py::arg("reduction"), py::arg("reduced"))
      .def("attend", &attend, py::arg("pool"), py::arg("batch"), py::arg("rows"), py::arg("own"),
           py::arg("heads"), py::arg("slope"), py::arg("weights"), py::arg("reduced"));
}

}  // namespace lsm
