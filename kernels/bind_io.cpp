// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the storage engines.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <tuple>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/process_owned.h"
#include "kernels/io/engines/io_uring_storage.h"
#include "kernels/io/engines/open_storage.h"
#include "kernels/io/read_scheduler.h"
#include "kernels/io/read_slots.h"
#include "kernels/io/row_map.h"

namespace py = pybind11;

namespace {

/// Memory of one read: ids, out, positions or None.
using ReadTensors = std::tuple<py::object, py::object, py::object>;

/// The positions of `num_rows` rows: empty if `positions` is None.
std::span<const int64_t> positions_of(const py::object& positions, size_t num_rows) {
  if (positions.is_none()) return {};
  const auto span = positions.cast<lsm::TensorView>().as<const int64_t>("positions");
  lsm::check_argument(span.size() == num_rows, "positions: expected ", num_rows,
                      ", one per id, got ", span.size());
  return span;
}

/// The read of `tensors`, which must stay alive.
lsm::RowRead row_read(const lsm::Storage& storage, const ReadTensors& tensors) {
  const auto& [ids, out, positions] = tensors;
  const auto output = out.cast<lsm::TensorView>();
  lsm::RowRead read;
  read.rows = ids.cast<lsm::TensorView>().as<const int64_t>("ids");
  read.on_gpu = !output.on_host;
  read.output = output.as_bytes_on(output.on_host ? -1 : storage.gpu(), "out");
  read.positions = positions_of(positions, read.rows.size());
  return read;
}

/// A request and the tensor it writes to, which must outlive it. A forked child leaves it alone:
/// the copies that its end waits for go on in the parent.
class Ticket {
 public:
  Ticket(std::shared_ptr<lsm::Request> request, py::object output)
      : request_(std::move(request)), output_(std::move(output)) {}
  ~Ticket() { request_->cancel(); }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  void wait(double timeout_secs) {
    py::gil_scoped_release release;
    request_->wait(timeout_secs);
  }
  bool done() const { return request_->done(); }

 private:
  std::shared_ptr<lsm::Request> request_;
  py::object output_;
};

/// reads: a list of (ids, out, positions or None). Returns a Ticket for each.
py::list submit(lsm::Storage& storage, const std::vector<ReadTensors>& reads) {
  std::vector<lsm::RowRead> requests;
  for (const ReadTensors& tensors : reads) requests.push_back(row_read(storage, tensors));
  lsm::Storage::Requests submitted;
  {
    py::gil_scoped_release release;
    submitted = storage.submit(requests);
  }
  py::list tickets;
  for (size_t i = 0; i < submitted.size(); ++i) {
    tickets.append(lsm::process_owned(
        std::make_unique<Ticket>(std::move(submitted[i]), std::get<1>(reads[i]))));
  }
  return tickets;
}

/// [4, reads] int64: file, offset in it, bytes, offset in the output.
py::array_t<int64_t> contiguous_reads(const lsm::Storage& storage, const lsm::TensorView& ids,
                                      const py::object& positions, size_t out_bytes,
                                      int64_t max_read_bytes) {
  lsm::RowRead read;
  read.rows = ids.as<const int64_t>("ids");
  read.positions = positions_of(positions, read.rows.size());
  std::vector<lsm::Piece> pieces;
  {
    py::gil_scoped_release release;
    pieces = storage.contiguous_reads(read, out_bytes, max_read_bytes);
  }
  py::array_t<int64_t> result({size_t{4}, pieces.size()});
  auto columns = result.mutable_unchecked<2>();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto column = static_cast<py::ssize_t>(i);
    columns(0, column) = pieces[i].file;
    columns(1, column) = pieces[i].file_offset;
    columns(2, column) = pieces[i].length;
    columns(3, column) = pieces[i].destination;
  }
  return result;
}

/// A read of a scheduler, and its memory.
struct ScheduledTicket {
  ReadTensors tensors;
  lsm::ProcessOwned<lsm::ScheduledRead> read;  // goes first; as a Ticket's
};

std::unique_ptr<ScheduledTicket> schedule(lsm::ReadScheduler& scheduler,
                                          const std::shared_ptr<lsm::Storage>& storage,
                                          const py::object& ids, const py::object& out,
                                          const py::object& positions) {
  auto ticket = std::make_unique<ScheduledTicket>();
  ticket->tensors = {ids, out, positions};
  const lsm::RowRead read = row_read(*storage, ticket->tensors);
  py::gil_scoped_release release;
  ticket->read = lsm::process_owned(scheduler.submit(storage, read));
  return ticket;
}

void bind_scheduler(py::module_& module) {
  py::class_<ScheduledTicket>(module, "ScheduledTicket")
      .def(
          "wait", [](ScheduledTicket& ticket, double secs) { ticket.read->wait(secs); },
          py::arg("timeout_secs"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("done",
                             [](const ScheduledTicket& ticket) { return ticket.read->done(); });
  py::class_<lsm::ReadScheduler, std::shared_ptr<lsm::ReadScheduler>>(module, "ReadScheduler")
      .def(py::init<int64_t>(), py::arg("wave"))
      .def("submit", &schedule, py::arg("storage"), py::arg("ids"), py::arg("out"),
           py::arg("positions") = py::none())
      .def("set_wave", &lsm::ReadScheduler::set_wave, py::arg("wave"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("has_collected", &lsm::ReadScheduler::has_collected)
      .def("flush", &lsm::ReadScheduler::flush, py::call_guard<py::gil_scoped_release>());
}

py::dict read_stats(lsm::Storage& storage) {
  const lsm::ReadStats& stats = storage.stats();
  py::dict result;
  result["requests"] = stats.requests.load();
  result["rows"] = stats.rows.load();
  result["bytes_requested"] = stats.bytes_requested.load();
  result["reads"] = stats.reads.load();
  result["bytes_read"] = stats.bytes_read.load();
  result["short_reads"] = stats.short_reads.load();
  result["errors"] = stats.errors.load();
  result["p50_us"] = static_cast<double>(stats.latency.quantile(0.50)) / 1e3;
  result["p99_us"] = static_cast<double>(stats.latency.quantile(0.99)) / 1e3;
  return result;
}

/// `file_sets`: the rows and files of each.
std::shared_ptr<lsm::Storage> open_engine(const std::string& engine, std::vector<std::string> paths,
                                          const std::vector<std::pair<int64_t, int64_t>>& file_sets,
                                          int64_t row_bytes, int64_t stripe_bytes, int queue_depth,
                                          int num_threads, int64_t max_read_bytes,
                                          int64_t max_gap_bytes, lsm::DirectMode direct,
                                          const lsm::nvme::NvmeOptions& nvme) {
  const auto layout = lsm::RowLayout::of_sets(file_sets, row_bytes, stripe_bytes);
  const lsm::EngineOptions options{queue_depth, num_threads, max_read_bytes, max_gap_bytes, direct};
  return lsm::process_owned(lsm::open_storage(engine, std::move(paths), layout, options, nvme));
}

void find_rows(const lsm::TensorView& ids, int64_t first, int64_t num_nodes,
               const lsm::TensorView& table, const lsm::TensorView& rows) {
  const lsm::RowMap map{first, num_nodes, table.as<const int64_t>("table")};
  const auto id_span = ids.as<const int64_t>("ids");
  const auto row_span = rows.as<int64_t>("rows");
  py::gil_scoped_release release;
  lsm::find_rows(id_span, map, row_span);
}

std::vector<int64_t> count_by_range(const lsm::TensorView& ids, const std::vector<int64_t>& ends) {
  const auto id_span = ids.as<const int64_t>("ids");
  py::gil_scoped_release release;
  return lsm::count_by_range(id_span, ends);
}

}  // namespace

namespace lsm {

void bind_io(py::module_& module) {
  py::enum_<lsm::DirectMode>(module, "DirectMode")
      .value("auto", lsm::DirectMode::kAuto)
      .value("on", lsm::DirectMode::kOn)
      .value("off", lsm::DirectMode::kOff);
  py::enum_<lsm::Fault>(module, "Fault")
      .value("error", lsm::Fault::kError)
      .value("short", lsm::Fault::kShort)
      .value("stall", lsm::Fault::kStall);
  py::class_<Ticket, lsm::ProcessOwned<Ticket>>(module, "Ticket")
      .def("wait", &Ticket::wait, py::arg("timeout_secs"))
      .def_property_readonly("done", &Ticket::done);
  py::class_<lsm::Storage, std::shared_ptr<lsm::Storage>>(module, "Storage")
      .def("submit", &submit, py::arg("reads"))
      .def("contiguous_reads", &contiguous_reads, py::arg("ids"), py::arg("positions"),
           py::arg("out_bytes"), py::arg("max_read_bytes"))
      .def("stats", &read_stats)
      .def_property_readonly(
          "outstanding_reads",
          [](lsm::Storage& storage) { return storage.stats().outstanding.load(); })
      .def("reset_stats", [](lsm::Storage& storage) { storage.stats().reset(); })
      .def("notes", &lsm::Storage::notes)
      .def_property_readonly("direct", &lsm::Storage::direct)
      .def_property_readonly("block_bytes", &lsm::Storage::block_bytes)
      .def(
          "inject_fault",
          [](lsm::Storage& storage, lsm::Fault fault, int64_t nth, int64_t value) {
            storage.faults().arm(fault, nth, value);
          },
          py::arg("fault"), py::arg("nth") = 0, py::arg("value") = 0);
  ::bind_scheduler(module);
  module.def("find_rows", &::find_rows, py::arg("ids"), py::arg("first"), py::arg("num_nodes"),
             py::arg("table"), py::arg("rows"));
  module.def("count_by_range", &::count_by_range, py::arg("ids"), py::arg("ends"));
  module.def("num_read_slots", &lsm::num_read_slots, py::arg("depth"));
  module.def("io_uring_problem", &lsm::io_uring_problem);
  module.def("open_storage", &open_engine, py::arg("engine"), py::arg("paths"),
             py::arg("file_sets"), py::arg("row_bytes"), py::arg("stripe_bytes"),
             py::arg("queue_depth"), py::arg("num_threads"), py::arg("max_read_bytes"),
             py::arg("max_gap_bytes"), py::arg("direct"), py::arg("nvme"),
             py::call_guard<py::gil_scoped_release>());
}

}  // namespace lsm
