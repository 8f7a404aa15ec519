// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports what the nvme engine can be told.
#include <pybind11/pybind11.h>

#include "kernels/bind.h"
#include "kernels/io/nvme/options.h"

namespace py = pybind11;

namespace lsm {

void bind_nvme(py::module_& module) {
  using nvme::DeviceFaults;
  using nvme::DeviceOptions;
  using nvme::EmulationOptions;
  using nvme::NvmeOptions;
  py::class_<DeviceFaults>(module, "DeviceFaults")
      .def_readwrite("seed", &DeviceFaults::seed)
      .def_readwrite("error_rate", &DeviceFaults::error_rate)
      .def_readwrite("loss_rate", &DeviceFaults::loss_rate)
      .def_readwrite("delay_rate", &DeviceFaults::delay_rate)
      .def_readwrite("delay_secs", &DeviceFaults::delay_secs)
      .def_readwrite("reorder", &DeviceFaults::reorder);
  py::class_<DeviceOptions>(module, "DeviceOptions")
      .def_readwrite("num_queues", &DeviceOptions::num_queues)
      .def_readwrite("max_queue_entries", &DeviceOptions::max_queue_entries)
      .def_readwrite("max_transfer_shift", &DeviceOptions::max_transfer_shift)
      .def_readwrite("never_ready", &DeviceOptions::never_ready)
      .def_readonly("faults", &DeviceOptions::faults);
  py::class_<EmulationOptions>(module, "EmulationOptions")
      .def_readwrite("block_bytes", &EmulationOptions::block_bytes)
      .def_readwrite("num_controllers", &EmulationOptions::num_controllers)
      .def_readonly("device", &EmulationOptions::device);
  py::class_<NvmeOptions>(module, "NvmeOptions")
      .def(py::init<>())
      .def_property(
          "transport", [](const NvmeOptions& options) { return options.transport.transport; },
          [](NvmeOptions& options, const std::string& name) { options.transport.transport = name; })
      .def_property_readonly(
          "emulated",
          [](NvmeOptions& options) -> EmulationOptions& { return options.transport.emulated; },
          py::return_value_policy::reference_internal)
      .def_readwrite("command_timeout_secs", &NvmeOptions::command_timeout_secs);
}

}  // namespace lsm
