// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the communication layer's parts that are about GPU memory, and their twins.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "comm/bind.h"
#include "comm/gpu_memory.h"
#include "comm/gpu_pool.h"
#include "kernels/bind_tensor.h"
#include "kernels/gather/gpu_scatter.h"

namespace py = pybind11;

namespace {

namespace comm = lsm::comm;

/// A DeviceDelivery and the GPU that it is on; negative: the twin.
struct Delivery {
  std::unique_ptr<comm::DeviceDelivery> native;
  int device;
};

std::unique_ptr<comm::DeviceMemory> make_memory(int device) {
  return device < 0 ? comm::make_twin_memory() : comm::make_device_memory(device);
}

/// A block of another process.
struct Mapped {
  std::shared_ptr<comm::MappedBlock> block;
  int device;
};

Mapped map_block(int device, const comm::BlockHandle& handle, size_t bytes) {
  return {make_memory(device)->map(handle, bytes), device};
}

py::capsule part_of(const Mapped& mapped, size_t offset, size_t bytes) {
  const size_t size = mapped.block->size();
  lsm::check_argument(offset <= size && bytes <= size - offset,
                      "a batch of another rank: expected ", bytes, " bytes at ", offset,
                      ", got memory of ", size);
  return lsm::memory_capsule(mapped.block, mapped.block->data() + offset,
                             static_cast<int64_t>(bytes), mapped.device);
}

/// Rows [n, dim] in memory that the copies of `device` reach.
comm::RowArray rows_on(int device, const lsm::TensorView& rows, const char* name) {
  lsm::check_argument(rows.num_dims == 2, name, ": expected [rows, dim], got ", rows.num_dims,
                      " dims");
  return {rows.as_bytes_on(rows.on_host ? -1 : device, name).data(), rows.shape[0]};
}

void deliver(Delivery& self, const lsm::TensorView& source, const lsm::TensorView& source_rows,
             const lsm::TensorView& target, const lsm::TensorView& target_rows) {
  const comm::RowArray from = rows_on(self.device, source, "source");
  const comm::RowArray to = rows_on(self.device, target, "target");
  const int64_t row_bytes = source.shape[1] * source.dtype.bytes;
  lsm::check_argument(row_bytes == target.shape[1] * target.dtype.bytes,
                      "target: expected rows as long as those of source");
  const auto from_rows = source_rows.as<const int32_t>("source_rows");
  const auto to_rows = target_rows.as<const int32_t>("target_rows");
  py::gil_scoped_release release;
  self.native->deliver(from, from_rows, to, to_rows, row_bytes);
}

void bind_memory(py::module_& module) {
  py::class_<comm::DeviceBuffer, std::shared_ptr<comm::DeviceBuffer>>(module, "DeviceBuffer")
      .def("__dlpack__",
           [](const std::shared_ptr<comm::DeviceBuffer>& buffer) {
             return lsm::memory_capsule(buffer, buffer->data(),
                                        static_cast<int64_t>(buffer->size()), buffer->device());
           })
      .def_property_readonly("size", &comm::DeviceBuffer::size)
      .def_property_readonly("number",
                             [](const comm::DeviceBuffer& buffer) { return buffer.place().number; })
      .def_property_readonly("offset",
                             [](const comm::DeviceBuffer& buffer) { return buffer.place().offset; })
      .def_property_readonly("block_bytes",
                             [](const comm::DeviceBuffer& buffer) { return buffer.block().size(); })
      .def_property_readonly(
          "handle", [](const comm::DeviceBuffer& buffer) { return buffer.block().handle(); });
  py::class_<comm::DevicePool, std::shared_ptr<comm::DevicePool>>(module, "DevicePool")
      .def(py::init([](int device, size_t block_bytes, double timeout_secs) {
             return std::make_shared<comm::DevicePool>(make_memory(device), block_bytes,
                                                       timeout_secs);
           }),
           py::arg("device"), py::arg("block_bytes"), py::arg("timeout_secs"),
           py::call_guard<py::gil_scoped_release>())
      .def("take", &comm::DevicePool::take, py::arg("bytes"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("size", &comm::DevicePool::size);
  py::class_<Mapped>(module, "MappedBlock")
      .def(py::init(&map_block), py::arg("device"), py::arg("handle"), py::arg("bytes"),
           py::call_guard<py::gil_scoped_release>())
      .def("part", &part_of, py::arg("offset"), py::arg("bytes"));
  module.def("peer_access_problem", &comm::peer_access_problem, py::arg("device"),
             py::arg("bus_id"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace

namespace lsm {

void bind_device_comm(py::module_& module) {
  bind_memory(module);
  py::class_<Delivery>(module, "DeviceDelivery")
      .def(py::init([](int device, double timeout_secs) {
             return Delivery{device < 0 ? comm::make_twin_delivery()
                                        : comm::make_device_delivery(device, timeout_secs),
                             device};
           }),
           py::arg("device"), py::arg("timeout_secs"), py::call_guard<py::gil_scoped_release>())
      .def("deliver", &deliver, py::arg("source"), py::arg("source_rows"), py::arg("target"),
           py::arg("target_rows"))
      .def(
          "synchronize", [](Delivery& self) { self.native->synchronize(); },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("stream", [](const Delivery& self) { return self.native->stream(); });
}

}  // namespace lsm
