// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the executor whose cache is GPU memory, and its twin.
#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "cache/bind.h"
#include "cache/bind_targets.h"
#include "cache/gpu_executor.h"
#include "cache/plan.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/process_owned.h"

namespace py = pybind11;

namespace {

/// A GpuExecutor and the GPU that it is on; -1: the twin.
struct Executor {
  lsm::ProcessOwned<lsm::GpuExecutor> executor;  // has a thread
  int device;
};

Executor make_executor(lsm::Storage& storage, const lsm::GpuExecutorOptions& options,
                       const lsm::TensorView& static_rows, const lsm::TensorView& constant_rows,
                       int device) {
  lsm::check_argument(
      options.num_lines >= 0 && options.victim_slots >= 0 && options.prefetch_rows >= 0,
      "num_lines, victim_slots, prefetch_rows: expected at least 0");
  const auto static_span = static_rows.as<const int64_t>("static_rows");
  const auto constant_span = constant_rows.as<const int64_t>("constant_rows");
  py::gil_scoped_release release;
  if (device < 0) {
    return {
        lsm::process_owned(lsm::make_twin_executor(options, storage, static_span, constant_span)),
        device};
  }
  return {lsm::process_owned(
              lsm::make_gpu_executor(options, storage, static_span, constant_span, device)),
          device};
}

void replay(Executor& self, const lsm::cache::Plan& plan, const lsm::TensorView& staged,
            const lsm::TensorView& out) {
  const auto staged_bytes = staged.as_bytes_on(staged.on_host ? -1 : self.device, "staged");
  const auto out_bytes = out.as_bytes_on(self.device, "out");
  py::gil_scoped_release release;
  self.executor->replay(plan, staged_bytes, out_bytes);
}

/// `targets`: tuples of tensors (row_of, rows, place).
void replay_to(Executor& self, const lsm::cache::Plan& plan, const lsm::TensorView& staged,
               const py::object& targets) {
  const auto staged_bytes = staged.as_bytes_on(staged.on_host ? -1 : self.device, "staged");
  const auto lists = lsm::row_targets(targets, self.executor->row_bytes(), self.device);
  py::gil_scoped_release release;
  self.executor->replay_to(plan, staged_bytes, lists);
}

void prefetch(Executor& self, const lsm::cache::Plan& plan) {
  py::gil_scoped_release release;
  self.executor->prefetch(plan.victim_slot);
}

/// staging: gather, copy or resident.
void set_staging(Executor& self, const std::string& staging) {
  using lsm::Staging;
  if (staging == "gather") return self.executor->set_staging(Staging::kGather);
  if (staging == "copy") return self.executor->set_staging(Staging::kCopy);
  lsm::check_argument(staging == "resident", "staging: expected gather, copy or resident, got '",
                      staging, "'");
  self.executor->set_staging(Staging::kResident);
}

}  // namespace

namespace lsm {

void bind_gpu_executor(py::module_& module) {
  py::class_<Executor>(module, "GpuExecutor")
      .def(py::init([](Storage& storage, int64_t num_lines, int64_t victim_slots,
                       int64_t prefetch_rows, const TensorView& static_rows,
                       const TensorView& constant_rows, double timeout_secs, int device) {
             return make_executor(storage, {num_lines, victim_slots, prefetch_rows, timeout_secs},
                                  static_rows, constant_rows, device);
           }),
           py::arg("storage"), py::kw_only(), py::arg("num_lines"), py::arg("victim_slots"),
           py::arg("prefetch_rows"), py::arg("static_rows"), py::arg("constant_rows"),
           py::arg("timeout_secs"), py::arg("device"))
      .def("set_staging", &set_staging, py::arg("staging"))
      .def("replay", &replay, py::arg("plan"), py::kw_only(), py::arg("staged"), py::arg("out"))
      .def("replay", &replay_to, py::arg("plan"), py::kw_only(), py::arg("staged"),
           py::arg("targets"))
      .def("prefetch", &prefetch, py::arg("plan"))
      .def(
          "wait_delivered", [](Executor& self) { self.executor->wait_delivered(); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "synchronize", [](Executor& self) { self.executor->synchronize(); },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("device", [](const Executor& self) { return self.device; })
      .def_property_readonly("stream", [](const Executor& self) { return self.executor->stream(); })
      .def_property_readonly("device_bytes",
                             [](const Executor& self) { return self.executor->device_bytes(); })
      .def_property_readonly("pinned_bytes",
                             [](const Executor& self) { return self.executor->pinned_bytes(); });
}

}  // namespace lsm
