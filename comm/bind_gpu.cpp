// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports GPU memory that other processes map, and its twin.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "comm/bind.h"
#include "comm/gpu_memory.h"
#include "comm/gpu_pool.h"
#include "kernels/bind_tensor.h"

namespace py = pybind11;

namespace {

namespace comm = lsm::comm;

std::unique_ptr<comm::GpuMemory> make_memory(int device) {
  return device < 0 ? comm::make_twin_memory() : comm::make_gpu_memory(device);
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

}  // namespace

namespace lsm {

void bind_gpu_comm(py::module_& module) {
  py::class_<comm::GpuBuffer, std::shared_ptr<comm::GpuBuffer>>(module, "GpuBuffer")
      .def("__dlpack__",
           [](const std::shared_ptr<comm::GpuBuffer>& buffer) {
             return lsm::memory_capsule(buffer, buffer->data(),
                                        static_cast<int64_t>(buffer->size()), buffer->device());
           })
      .def_property_readonly("size", &comm::GpuBuffer::size)
      .def_property_readonly("number",
                             [](const comm::GpuBuffer& buffer) { return buffer.place().number; })
      .def_property_readonly("offset",
                             [](const comm::GpuBuffer& buffer) { return buffer.place().offset; })
      .def_property_readonly("block_bytes",
                             [](const comm::GpuBuffer& buffer) { return buffer.block().size(); })
      .def_property_readonly("handle",
                             [](const comm::GpuBuffer& buffer) { return buffer.block().handle(); });
  py::class_<comm::GpuPool, std::shared_ptr<comm::GpuPool>>(module, "GpuPool")
      .def(py::init([](int device, size_t block_bytes, double timeout_secs) {
             return std::make_shared<comm::GpuPool>(make_memory(device), block_bytes, timeout_secs);
           }),
           py::arg("device"), py::arg("block_bytes"), py::arg("timeout_secs"),
           py::call_guard<py::gil_scoped_release>())
      .def("take", &comm::GpuPool::take, py::arg("bytes"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("size", &comm::GpuPool::size);
  py::class_<Mapped>(module, "MappedBlock")
      .def(py::init(&map_block), py::arg("device"), py::arg("handle"), py::arg("bytes"),
           py::call_guard<py::gil_scoped_release>())
      .def("part", &part_of, py::arg("offset"), py::arg("bytes"));
  module.def("peer_access_problem", &comm::peer_access_problem, py::arg("device"),
             py::arg("bus_id"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace lsm
