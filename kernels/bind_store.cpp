// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports functions that build and check stores.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/mapped_file.h"
#include "kernels/store/csc.h"

namespace py = pybind11;

namespace {

template <class Id>
lsm::EdgeChunk<Id> edge_chunk(const lsm::TensorView& edges, int64_t num_sources,
                              int64_t first_edge) {
  const Id* sources = static_cast<const Id*>(edges.data);
  return {sources,   sources + edges.strides[0], edges.strides[1], edges.shape[1], num_sources,
          first_edge};
}

/// Calls body with the EdgeChunk<int32_t or int64_t> that views `edges`: [2, n], any strides.
template <class Body>
void with_edge_chunk(const lsm::TensorView& edges, int64_t num_sources, int64_t first_edge,
                     const Body& body) {
  lsm::check_argument(edges.on_host && edges.num_dims == 2 && edges.shape[0] == 2,
                      "edges: expected a host tensor [2, n]");
  py::gil_scoped_release release;
  if (edges.dtype == lsm::dtype_of<int32_t>()) {
    body(edge_chunk<int32_t>(edges, num_sources, first_edge));
  } else {
    lsm::check_argument(edges.dtype == lsm::dtype_of<int64_t>(),
                        "edges: expected dtype int32 or int64, got ", to_string(edges.dtype));
    body(edge_chunk<int64_t>(edges, num_sources, first_edge));
  }
}

void count_degrees(lsm::ThreadPool& pool, const lsm::TensorView& edges, int64_t num_sources,
                   int64_t first_edge, const lsm::TensorView& degrees) {
  const auto counts = degrees.as<int64_t>("degrees");
  with_edge_chunk(edges, num_sources, first_edge,
                  [&](const auto& chunk) { lsm::count_degrees(pool, chunk, counts); });
}

void fill_csc(lsm::ThreadPool& pool, const lsm::TensorView& edges, int64_t num_sources,
              int64_t first_edge, const lsm::TensorView& cursors, int64_t first_node,
              int64_t last_node, int64_t first_index, const lsm::TensorView& indices) {
  const auto next = cursors.as<int64_t>("cursors");
  with_edge_chunk(edges, num_sources, first_edge, [&](const auto& chunk) {
    if (indices.dtype == lsm::dtype_of<int32_t>()) {
      lsm::fill(pool, chunk, next, first_node, last_node, first_index,
                indices.as<int32_t>("indices"));
    } else {
      lsm::fill(pool, chunk, next, first_node, last_node, first_index,
                indices.as<int64_t>("indices"));
    }
  });
}

void fill_csc_order(lsm::ThreadPool& pool, const lsm::TensorView& edges, int64_t num_sources,
                    int64_t first_edge, const lsm::TensorView& cursors, int64_t first_node,
                    int64_t last_node, int64_t first_index, const lsm::TensorView& order) {
  const auto next = cursors.as<int64_t>("cursors");
  const auto positions = order.as<int64_t>("order");
  with_edge_chunk(edges, num_sources, first_edge, [&](const auto& chunk) {
    lsm::fill_order(pool, chunk, next, first_node, last_node, first_index, positions);
  });
}

void sort_lists(lsm::ThreadPool& pool, const lsm::TensorView& ends, int64_t first_index,
                const lsm::TensorView& keys, const lsm::TensorView& values) {
  const auto list_ends = ends.as<const int64_t>("ends");
  const auto of_values = keys.as<const int64_t>("keys");
  const auto sorted = values.as<int64_t>("values");
  py::gil_scoped_release release;
  lsm::sort_lists(pool, list_ends, first_index, of_values, sorted);
}

}  // namespace

namespace lsm {

void bind_store(py::module_& module) {
  py::class_<MappedFile>(module, "MappedFile", py::buffer_protocol())
      .def(py::init<std::string>(), py::arg("path"))
      .def_buffer([](MappedFile& file) {
        return py::buffer_info(file.data(), 1, py::format_descriptor<uint8_t>::format(),
                               static_cast<py::ssize_t>(file.size()));
      });
  module.def(
      "check_mapped", [](const TensorView& tensor) { check_mapped(tensor.data); },
      py::arg("tensor"));
  module.def("count_degrees", &::count_degrees, py::arg("pool"), py::arg("edges"),
             py::arg("num_sources"), py::arg("first_edge"), py::arg("degrees"));
  module.def("fill_csc", &::fill_csc, py::arg("pool"), py::arg("edges"), py::arg("num_sources"),
             py::arg("first_edge"), py::arg("cursors"), py::arg("first_node"), py::arg("last_node"),
             py::arg("first_index"), py::arg("indices"));
  module.def("fill_csc_order", &::fill_csc_order, py::arg("pool"), py::arg("edges"),
             py::arg("num_sources"), py::arg("first_edge"), py::arg("cursors"),
             py::arg("first_node"), py::arg("last_node"), py::arg("first_index"), py::arg("order"));
  module.def("sort_lists", &::sort_lists, py::arg("pool"), py::arg("ends"), py::arg("first_index"),
             py::arg("keys"), py::arg("values"));
}

}  // namespace lsm
