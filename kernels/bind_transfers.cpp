// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports long transfers between memory and disk.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/process_owned.h"
#include "kernels/io/engines/open_transfers.h"

namespace py = pybind11;

namespace {

using OwnedTransfers = lsm::ProcessOwned<lsm::Transfers>;

OwnedTransfers open_transfer_engine(const std::string& engine, std::string path, int queue_depth,
                                    int64_t chunk_bytes, lsm::DirectMode direct,
                                    const lsm::nvme::NvmeOptions& nvme, bool read_only) {
  const lsm::TransferOptions options{queue_depth, chunk_bytes, read_only};
  return lsm::process_owned(lsm::open_transfers(engine, std::move(path), options, direct, nvme));
}

std::pair<uint64_t, uint64_t> swap(lsm::Transfers& transfers, const lsm::TensorView& memory,
                                   std::optional<int64_t> write_to,
                                   std::optional<int64_t> read_from, double timeout_secs,
                                   int64_t first_page) {
  const auto bytes = memory.as_bytes("memory");
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  const lsm::Swap swap{bytes.data(), num_bytes, write_to, read_from, first_page};
  py::gil_scoped_release release;
  const lsm::SwapSums sums = transfers.swap(swap, timeout_secs);
  return {sums.written, sums.read};
}

py::dict transfer_stats(const lsm::Transfers& transfers) {
  py::dict result;
  result["bytes_read"] = transfers.stats().bytes_read.load();
  result["bytes_written"] = transfers.stats().bytes_written.load();
  result["short_transfers"] = transfers.stats().short_transfers.load();
  result["commands"] = transfers.stats().commands.load();
  result["doorbells"] = transfers.stats().doorbells.load();
  return result;
}

}  // namespace

void lsm::bind_transfers(py::module_& module) {
  py::class_<lsm::Transfers, OwnedTransfers>(module, "Transfers")
      .def("swap", &swap, py::arg("memory"), py::arg("write_to"), py::arg("read_from"),
           py::arg("timeout_secs"), py::arg("first_page") = 0)
      .def("sync", &lsm::Transfers::sync, py::call_guard<py::gil_scoped_release>())
      .def("stats", &transfer_stats)
      .def_property_readonly("direct", &lsm::Transfers::direct)
      .def_property_readonly("block_bytes", &lsm::Transfers::block_bytes)
      .def_property_readonly("num_bytes", &lsm::Transfers::num_bytes)
      .def(
          "inject_fault",
          [](lsm::Transfers& transfers, lsm::Fault fault, int64_t nth, int64_t value) {
            transfers.faults().arm(fault, nth, value);
          },
          py::arg("fault"), py::arg("nth") = 0, py::arg("value") = 0);
  module.def("open_transfers", &open_transfer_engine, py::arg("engine"), py::arg("path"),
             py::arg("queue_depth"), py::arg("chunk_bytes"), py::arg("direct"), py::arg("nvme"),
             py::arg("read_only") = false, py::call_guard<py::gil_scoped_release>());
}
