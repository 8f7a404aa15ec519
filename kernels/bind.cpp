// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the native building blocks to lsm/native.py. Conversions and the release of the GIL
// happen here; everything else happens in the headers that this file includes.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cache/bind.h"
#include "comm/bind.h"
#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/buffer.h"
#include "kernels/core/check.h"
#include "kernels/core/philox.h"
#include "kernels/core/start_thread.h"
#include "kernels/core/thread_pool.h"

namespace py = pybind11;

namespace {

void register_errors(py::module_& module) {
  py::register_exception<lsm::ThreadError>(module, "ThreadError", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const lsm::ArgumentError& error) {
      PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const lsm::TimeoutError& error) {
      PyErr_SetString(PyExc_TimeoutError, error.what());
    } catch (const lsm::SystemError& error) {
      // OSError(errno, text, file) picks the right subclass (FileNotFoundError, ...).
      py::tuple arguments = py::make_tuple(error.error_number, error.what(), error.file);
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    }
  });
}

void bind_core(py::module_& module) {
  py::class_<lsm::Buffer, std::shared_ptr<lsm::Buffer>>(module, "Buffer", py::buffer_protocol())
      .def_buffer([](lsm::Buffer& buffer) {
        return py::buffer_info(buffer.data(), 1, py::format_descriptor<uint8_t>::format(),
                               static_cast<py::ssize_t>(buffer.size()));
      })
      .def_property_readonly("size", &lsm::Buffer::size);
  py::class_<lsm::BufferPool, std::shared_ptr<lsm::BufferPool>>(module, "BufferPool")
      .def(py::init<size_t>(), py::arg("max_idle_bytes"))
      .def("take", &lsm::BufferPool::take, py::arg("bytes"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("idle_bytes", &lsm::BufferPool::idle_bytes);
  py::class_<lsm::ThreadPool, std::shared_ptr<lsm::ThreadPool>>(module, "ThreadPool")
      .def(py::init<int>(), py::arg("num_threads"))
      .def_property_readonly("num_threads", &lsm::ThreadPool::num_threads);
  module.def("batch_key", &lsm::batch_key, py::arg("seed"), py::arg("epoch"), py::arg("iteration"),
             py::arg("rank"));
}

py::dict build_info() {
  py::dict info;
  info["compiler"] = LSM_COMPILER;
  info["build_type"] = LSM_BUILD_TYPE;
  info["io_uring"] = static_cast<bool>(LSM_HAS_IO_URING);
  info["cuda"] = static_cast<bool>(LSM_HAS_CUDA);
  return info;
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of LSM-GNN; import it through lsm.native.";
  register_errors(module);
  bind_core(module);
  lsm::bind_sampling(module);
  lsm::bind_device_sampling(module);
  lsm::bind_nvme(module);
  lsm::bind_io(module);
  lsm::bind_store(module);
  lsm::bind_cache(module);
  lsm::bind_executor(module);
  lsm::bind_device(module);
  lsm::bind_comm(module);
  lsm::bind_device_comm(module);
  module.def("build_info", &build_info, "How this module was built.");
}
