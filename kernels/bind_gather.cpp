// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports gathers and scatters of rows: on the host, on a GPU, by the GPU's twin.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/core/thread_pool.h"
#include "kernels/gather/gather.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"
#include "kernels/gather/scatter.h"

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

/// locks: none, device or system. references: [rows of source] uint32, all 0, or None.
void gather_on(const lsm::TensorView& source, const lsm::TensorView& ids,
               const lsm::TensorView& out, const std::optional<lsm::TensorView>& references,
               const std::string& locks, int device, intptr_t stream) {
  static constexpr std::array<const char*, 3> kLocks = {"none", "device", "system"};
  const auto found = std::find(kLocks.begin(), kLocks.end(), locks);
  lsm::check_argument(found != kLocks.end(), "locks: expected none, device or system, got '", locks,
                      "'");
  const auto kind = static_cast<lsm::LineLocks>(found - kLocks.begin());
  const auto source_bytes = source.as_bytes_on(device, "source");
  const auto out_bytes = out.as_bytes_on(device, "out");
  const auto id_bytes = ids.as_bytes_on(device, "ids");
  lsm::check_argument(ids.dtype == lsm::dtype_of<int64_t>() && source.num_dims == 2 &&
                          out.num_dims == 2 && out.dtype == source.dtype &&
                          out.shape[1] == source.shape[1] && out.shape[0] == ids.shape[0],
                      "expected source [N, dim], ids int64 [n] and out [n, dim]");
  lsm::GpuGather gather{source_bytes.data(), reinterpret_cast<const int64_t*>(id_bytes.data()),
                        out_bytes.data(),    nullptr,
                        ids.shape[0],        source.shape[1] * source.dtype.bytes};
  if (kind != lsm::LineLocks::kNone) {
    lsm::check_argument(references && references->dtype.bytes == sizeof(uint32_t) &&
                            references->num_elements() == source.shape[0],
                        "references: expected ", source.shape[0], " elements of 4 bytes");
    gather.references =
        reinterpret_cast<uint32_t*>(references->as_bytes_on(device, "references").data());
  }
  py::gil_scoped_release release;
  if (device >= 0) return lsm::gather_on_gpu(gather, kind, device, stream);
  lsm::check_ids("ids", {gather.ids, static_cast<size_t>(gather.count)}, source.shape[0]);
  lsm::gather_by_twin(gather, kind);
}

int64_t row_bytes_of(const lsm::TensorView& rows, const char* name) {
  lsm::check_argument(rows.num_dims == 2, name, ": expected [rows, dim], got ", rows.num_dims,
                      " dims");
  return rows.shape[1] * rows.dtype.bytes;
}

void scatter_rows(const lsm::TensorView& source, const lsm::TensorView& source_rows,
                  const lsm::TensorView& target, const lsm::TensorView& target_rows,
                  lsm::ThreadPool& pool) {
  const int64_t row_bytes = row_bytes_of(source, "source");
  lsm::check_argument(row_bytes == row_bytes_of(target, "target"),
                      "target: expected rows as long as those of source");
  const lsm::RowArray from{source.as_bytes("source").data(), source.shape[0]};
  const lsm::RowArray to{target.as_bytes("target").data(), target.shape[0]};
  const auto from_rows = source_rows.as<const int32_t>("source_rows");
  const auto to_rows = target_rows.as<const int32_t>("target_rows");
  py::gil_scoped_release release;
  lsm::scatter_rows(from, from_rows, to, to_rows, row_bytes, pool);
}

/// A GpuScatter and the GPU that it is on; negative: the twin.
struct Scatter {
  std::unique_ptr<lsm::GpuScatter> native;
  int device;
};

/// Rows [n, dim] in memory that the kernels of `device` reach.
lsm::RowArray rows_on(int device, const lsm::TensorView& rows, const char* name) {
  lsm::check_argument(rows.num_dims == 2, name, ": expected [rows, dim], got ", rows.num_dims,
                      " dims");
  return {rows.as_bytes_on(rows.on_host ? -1 : device, name).data(), rows.shape[0]};
}

void scatter(Scatter& self, const lsm::TensorView& source, const lsm::TensorView& source_rows,
             const lsm::TensorView& target, const lsm::TensorView& target_rows) {
  const lsm::RowArray from = rows_on(self.device, source, "source");
  const lsm::RowArray to = rows_on(self.device, target, "target");
  const int64_t row_bytes = source.shape[1] * source.dtype.bytes;
  lsm::check_argument(row_bytes == target.shape[1] * target.dtype.bytes,
                      "target: expected rows as long as those of source");
  const auto from_rows = source_rows.as<const int32_t>("source_rows");
  const auto to_rows = target_rows.as<const int32_t>("target_rows");
  py::gil_scoped_release release;
  self.native->scatter(from, from_rows, to, to_rows, row_bytes);
}

}  // namespace

namespace lsm {

void bind_gather(py::module_& module) {
  module.def("gather_rows", &::gather_rows, py::arg("source"), py::arg("ids"), py::arg("out"),
             py::arg("pool"));
  module.def("gather_on", &gather_on, py::arg("source"), py::arg("ids"), py::arg("out"),
             py::arg("references"), py::arg("locks"), py::arg("device"), py::arg("stream"));
  module.def("scatter_rows", &::scatter_rows, py::arg("source"), py::arg("source_rows"),
             py::arg("target"), py::arg("target_rows"), py::arg("pool"));
  py::class_<Scatter>(module, "GpuScatter")
      .def(py::init([](int device, double timeout_secs) {
             return Scatter{
                 device < 0 ? make_twin_scatter() : make_gpu_scatter(device, timeout_secs), device};
           }),
           py::arg("device"), py::arg("timeout_secs"), py::call_guard<py::gil_scoped_release>())
      .def("scatter", &scatter, py::arg("source"), py::arg("source_rows"), py::arg("target"),
           py::arg("target_rows"))
      .def(
          "synchronize", [](Scatter& self) { self.native->synchronize(); },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("stream", [](const Scatter& self) { return self.native->stream(); });
}

}  // namespace lsm
