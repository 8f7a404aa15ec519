// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the options of the nvme engine, checks of drives before it runs, and a measurement of its
// queue code.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "kernels/bind.h"
#include "kernels/io/nvme/engine/gpu_measure.h"
#include "kernels/io/nvme/engine/measure.h"
#include "kernels/io/nvme/engine/namespaces.h"
#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/nvme/transport/libnvm_module.h"

namespace py = pybind11;

namespace {

py::dict measure(bool sparse, uint32_t depth, uint32_t batch, uint32_t read_bytes, uint64_t reads,
                 const std::string& file, uint64_t memory_bytes) {
  lsm::nvme::MeasureOptions options;
  options.sparse = sparse;
  options.depth = depth;
  options.completion_depth = 16 * depth;
  options.batch = batch;
  options.read_bytes = read_bytes;
  options.reads = reads;
  options.file = file;
  options.memory_bytes = memory_bytes;
  lsm::nvme::Measured measured;
  {
    py::gil_scoped_release release;
    measured = lsm::nvme::measure_reads(options);
  }
  py::dict result;
  result["seconds"] = measured.seconds;
  result["submitter_cpu_secs"] = measured.submitter_cpu_secs;
  result["process_cpu_secs"] = measured.process_cpu_secs;
  result["tail_writes"] = measured.tail_writes;
  result["head_writes"] = measured.head_writes;
  return result;
}

py::list measure_waves(std::vector<int> num_blocks, uint32_t read_bytes, uint32_t num_reads,
                       bool into_device_memory, uint32_t rounds, int device) {
  lsm::nvme::WaveOptions options;
  options.device = device;
  options.num_blocks = std::move(num_blocks);
  options.num_reads = num_reads;
  options.read_bytes = read_bytes;
  options.into_device_memory = into_device_memory;
  options.rounds = rounds;
  std::vector<lsm::nvme::WaveRates> measured;
  {
    py::gil_scoped_release release;
    measured = lsm::nvme::measure_waves(options);
  }
  py::list result;
  for (const lsm::nvme::WaveRates& rates : measured) {
    py::dict row;
    row["thread_blocks"] = rates.num_blocks;
    row["split_reads_per_s"] = rates.split;
    row["synchronous_reads_per_s"] = rates.synchronous;
    result.append(row);
  }
  return result;
}

py::bytes read_last_page(const lsm::nvme::NvmeOptions& options, const std::string& device) {
  std::vector<std::byte> page;
  {
    py::gil_scoped_release release;
    page = lsm::nvme::read_last_page(options.transport, device);
  }
  return py::bytes(reinterpret_cast<const char*>(page.data()), page.size());
}

}  // namespace

namespace lsm {

void bind_nvme(py::module_& module) {
  using nvme::ControllerFaults;
  using nvme::ControllerOptions;
  using nvme::EmulationOptions;
  using nvme::GpuSubmission;
  using nvme::NvmeOptions;
  py::class_<ControllerFaults>(module, "ControllerFaults")
      .def_readwrite("seed", &ControllerFaults::seed)
      .def_readwrite("after", &ControllerFaults::after)
      .def_readwrite("error_rate", &ControllerFaults::error_rate)
      .def_readwrite("loss_rate", &ControllerFaults::loss_rate)
      .def_readwrite("delay_rate", &ControllerFaults::delay_rate)
      .def_readwrite("delay_secs", &ControllerFaults::delay_secs)
      .def_readwrite("lost_data_rate", &ControllerFaults::lost_data_rate)
      .def_readwrite("reorder", &ControllerFaults::reorder);
  py::class_<ControllerOptions>(module, "ControllerOptions")
      .def_readwrite("num_queues", &ControllerOptions::num_queues)
      .def_readwrite("max_queue_entries", &ControllerOptions::max_queue_entries)
      .def_readwrite("max_transfer_shift", &ControllerOptions::max_transfer_shift)
      .def_readwrite("never_ready", &ControllerOptions::never_ready)
      .def_readonly("faults", &ControllerOptions::faults);
  py::class_<EmulationOptions>(module, "EmulationOptions")
      .def_readwrite("block_bytes", &EmulationOptions::block_bytes)
      .def_readwrite("num_controllers", &EmulationOptions::num_controllers)
      .def_readwrite("most_bytes", &EmulationOptions::most_bytes)
      .def_readonly("controller", &EmulationOptions::controller);
  py::class_<GpuSubmission>(module, "GpuSubmission")
      .def_readwrite("device", &GpuSubmission::device)
      .def_readwrite("num_blocks", &GpuSubmission::num_blocks);
  py::class_<NvmeOptions>(module, "NvmeOptions")
      .def(py::init<>())
      .def_property(
          "transport", [](const NvmeOptions& options) { return options.transport.transport; },
          [](NvmeOptions& options, const std::string& name) { options.transport.transport = name; })
      .def_property_readonly(
          "emulated",
          [](NvmeOptions& options) -> EmulationOptions& { return options.transport.emulated; },
          py::return_value_policy::reference_internal)
      .def_readwrite("command_timeout_secs", &NvmeOptions::command_timeout_secs)
      .def_readonly("submission", &NvmeOptions::submission)
      .def_readwrite("gpu", &NvmeOptions::gpu);
  module.def("measure_nvme_reads", &measure, py::arg("sparse"), py::arg("depth"), py::arg("batch"),
             py::arg("read_bytes"), py::arg("reads"), py::arg("file"), py::arg("memory_bytes"));
  module.def("measure_nvme_waves", &measure_waves, py::arg("num_blocks"), py::arg("read_bytes"),
             py::arg("num_reads"), py::arg("into_device_memory"), py::arg("rounds"),
             py::arg("device"));
  module.def("read_last_page", &read_last_page, py::arg("options"), py::arg("name"));
  module.def("libnvm_problem", &nvme::libnvm_problem, py::arg("path"));
}

}  // namespace lsm
