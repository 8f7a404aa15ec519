// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports kernels/core: memory, threads, names of batches, and the errors of all parts.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernels/bind.h"
#include "kernels/core/buffer.h"
#include "kernels/core/check.h"
#include "kernels/core/page_lock.h"
#include "kernels/core/philox.h"
#include "kernels/core/process_owned.h"
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

/// Memory that Python sees as bytes.
template <class Memory>
py::class_<Memory, std::shared_ptr<Memory>> def_memory(py::module_& module, const char* name) {
  return py::class_<Memory, std::shared_ptr<Memory>>(module, name, py::buffer_protocol())
      .def_buffer([](Memory& memory) {
        return py::buffer_info(memory.data(), 1, py::format_descriptor<uint8_t>::format(),
                               static_cast<py::ssize_t>(memory.size()));
      })
      .def_property_readonly("size", &Memory::size);
}

std::shared_ptr<lsm::LockedPool> make_locked_pool(size_t max_idle_bytes, int device) {
  return std::make_shared<lsm::LockedPool>(max_idle_bytes, [device](size_t bytes, size_t headroom) {
    return std::make_unique<lsm::LockedBlock>(bytes + headroom, device);
  });
}

}  // namespace

namespace lsm {

void bind_core(py::module_& module) {
  register_errors(module);
  def_memory<HostBuffer>(module, "HostBuffer");
  py::class_<BufferPool, std::shared_ptr<BufferPool>>(module, "BufferPool")
      .def(py::init<size_t>(), py::arg("max_idle_bytes"))
      .def("take", &BufferPool::take, py::arg("bytes"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("idle_bytes", &BufferPool::idle_bytes);
  def_memory<LockedBlock>(module, "LockedBlock")
      .def(py::init<size_t, int>(), py::arg("bytes"), py::arg("device"),
           py::call_guard<py::gil_scoped_release>());
  def_memory<LockedBuffer>(module, "LockedBuffer");
  py::class_<LockedPool, std::shared_ptr<LockedPool>>(module, "LockedPool")
      .def(py::init(&make_locked_pool), py::arg("max_idle_bytes"), py::arg("device"))
      .def("take", &LockedPool::take, py::arg("bytes"), py::call_guard<py::gil_scoped_release>());
  py::class_<ThreadPool, std::shared_ptr<ThreadPool>>(module, "ThreadPool")
      .def(py::init([](int num_threads) -> std::shared_ptr<ThreadPool> {
             return process_owned(std::make_unique<ThreadPool>(num_threads));
           }),
           py::arg("num_threads"))
      .def_property_readonly("num_threads", &ThreadPool::num_threads);
  module.def("batch_key", &batch_key, py::arg("seed"), py::arg("epoch"), py::arg("iteration"),
             py::arg("rank"));
}

}  // namespace lsm
