// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the communication layer's native parts: owners, request lists, shared memory, mailboxes.
#include "comm/bind.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "comm/mailbox.h"
#include "comm/owner.h"
#include "comm/request_lists.h"
#include "comm/shared_memory.h"
#include "kernels/bind_tensor.h"

namespace py = pybind11;

namespace {

namespace comm = lsm::comm;

std::unique_ptr<comm::OwnerMap> make_owner_map(comm::OwnerHash hash, int64_t num_nodes,
                                               int64_t num_ranks, int64_t rank,
                                               const lsm::TensorView& table,
                                               const lsm::TensorView& replicated_ids) {
  return std::make_unique<comm::OwnerMap>(comm::OwnerMap::Config{hash, num_nodes, num_ranks, rank},
                                          table.as<const uint8_t>("table"),
                                          replicated_ids.as<const int64_t>("replicated_ids"));
}

void bucket(const comm::OwnerMap& owners, const lsm::TensorView& ids,
            const lsm::TensorView& bucketed, const lsm::TensorView& positions,
            const lsm::TensorView& starts, lsm::ThreadPool& pool) {
  const auto id_span = ids.as<const int64_t>("ids");
  const comm::Buckets out{bucketed.as<int64_t>("bucketed"), positions.as<int32_t>("positions"),
                          starts.as<int64_t>("starts")};
  lsm::check_argument(out.ids.size() == id_span.size() && out.positions.size() == id_span.size(),
                      "bucketed, positions: expected ", id_span.size(), " elements, got ",
                      out.ids.size(), " and ", out.positions.size());
  lsm::check_argument(static_cast<int64_t>(out.starts.size()) == owners.num_ranks() + 1,
                      "starts: expected ", owners.num_ranks() + 1, " elements, got ",
                      out.starts.size());
  py::gil_scoped_release release;
  comm::bucket_by_owner(id_span, owners, out, pool);
}

int64_t merge(const std::vector<lsm::TensorView>& lists, const lsm::TensorView& ids,
              const lsm::TensorView& row_of, const lsm::TensorView& rank_starts) {
  std::vector<std::span<const int64_t>> spans;
  for (const lsm::TensorView& list : lists) spans.push_back(list.as<const int64_t>("lists"));
  size_t total = 0;
  for (const auto& list : spans) total += list.size();
  const comm::MergedLists out{ids.as<int64_t>("ids"), row_of.as<int32_t>("row_of"),
                              rank_starts.as<int64_t>("rank_starts")};
  lsm::check_argument(out.ids.size() > total && out.row_of.size() == total,
                      "ids, row_of: expected room for ", total + 1, " and ", total, ", got ",
                      out.ids.size(), " and ", out.row_of.size());
  lsm::check_argument(out.rank_starts.size() == spans.size() + 1, "rank_starts: expected ",
                      spans.size() + 1, " elements, got ", out.rank_starts.size());
  py::gil_scoped_release release;
  return comm::merge_lists(spans, out);
}

/// Lets torch wrap the memory of a SharedBuffer or a PeerBlock.
template <class Memory>
py::buffer_info bytes_of(Memory& memory) {
  return py::buffer_info(reinterpret_cast<uint8_t*>(memory.data()), 1,
                         py::format_descriptor<uint8_t>::format(),
                         static_cast<py::ssize_t>(memory.size()));
}

/// The ring at `offset` of shared memory.
template <class Memory>
std::unique_ptr<comm::Mailbox> make_mailbox(const Memory& memory, size_t offset) {
  const size_t bytes = comm::Mailbox::num_bytes();
  lsm::check_argument(offset <= memory.size() && bytes <= memory.size() - offset,
                      "mailbox: expected ", bytes, " bytes at ", offset, ", got memory of ",
                      memory.size());
  return std::make_unique<comm::Mailbox>(memory.data() + offset);
}

/// The next message; empty if none has arrived in time. Blocks. Keeps the GIL if a message has
/// arrived, since another thread might take the GIL.
std::vector<int64_t> receive(comm::Mailbox& mailbox, double secs) {
  std::vector<int64_t> words = mailbox.read();
  if (!words.empty() || secs <= 0) return words;
  {
    py::gil_scoped_release release;
    mailbox.wait_written(secs);
  }
  return mailbox.read();
}

void bind_requests(py::module_& module) {
  py::enum_<comm::OwnerHash>(module, "OwnerHash")
      .value("stride", comm::OwnerHash::kStride)
      .value("mix64", comm::OwnerHash::kMix64)
      .value("table", comm::OwnerHash::kTable);
  // The map reads the table's memory, so it keeps the tensor.
  py::class_<comm::OwnerMap>(module, "OwnerMap")
      .def(py::init(&make_owner_map), py::arg("hash"), py::arg("num_nodes"), py::arg("num_ranks"),
           py::arg("rank"), py::arg("table"), py::arg("replicated_ids"), py::keep_alive<1, 6>())
      .def("bucket", &bucket, py::arg("ids"), py::arg("bucketed"), py::arg("positions"),
           py::arg("starts"), py::arg("pool"));
  module.def("merge_lists", &merge, py::arg("lists"), py::arg("ids"), py::arg("row_of"),
             py::arg("rank_starts"));
}

void bind_shared_memory(py::module_& module) {
  py::class_<comm::SharedBuffer, std::shared_ptr<comm::SharedBuffer>>(module, "SharedBuffer",
                                                                      py::buffer_protocol())
      .def_buffer(&bytes_of<comm::SharedBuffer>)
      .def_property_readonly("size", &comm::SharedBuffer::size)
      .def_property_readonly(
          "capacity", [](const comm::SharedBuffer& buffer) { return buffer.block().capacity(); })
      .def_property_readonly(
          "descriptor",
          [](const comm::SharedBuffer& buffer) { return buffer.block().descriptor(); })
      .def_property_readonly(
          "number", [](const comm::SharedBuffer& buffer) { return buffer.block().number(); });
  py::class_<comm::SharedPool, std::shared_ptr<comm::SharedPool>>(module, "SharedPool")
      .def(py::init<size_t>(), py::arg("max_idle_bytes"))
      .def("take", &comm::SharedPool::take, py::arg("bytes"),
           py::call_guard<py::gil_scoped_release>());
  py::class_<comm::PeerBlock, std::shared_ptr<comm::PeerBlock>>(module, "PeerBlock",
                                                                py::buffer_protocol())
      .def(py::init<int64_t, int, size_t>(), py::arg("process_id"), py::arg("descriptor"),
           py::arg("bytes"), py::call_guard<py::gil_scoped_release>())
      .def_buffer(&bytes_of<comm::PeerBlock>)
      .def_property_readonly("size", &comm::PeerBlock::size);
}

void bind_mailbox(py::module_& module) {
  py::class_<comm::Mailbox>(module, "Mailbox")
      .def(py::init(&make_mailbox<comm::SharedBuffer>), py::arg("memory"), py::arg("offset"),
           py::keep_alive<1, 2>())
      .def(py::init(&make_mailbox<comm::PeerBlock>), py::arg("memory"), py::arg("offset"),
           py::keep_alive<1, 2>())
      .def_property_readonly_static("num_bytes",
                                    [](const py::object&) { return comm::Mailbox::num_bytes(); })
      .def(
          "send",
          [](comm::Mailbox& mailbox, const std::vector<int64_t>& words) {
            return mailbox.write(words);
          },
          py::arg("words"))
      .def("receive", &receive, py::arg("secs"))
      .def("wait_read", &comm::Mailbox::wait_read, py::arg("secs"),
           py::call_guard<py::gil_scoped_release>());
}

}  // namespace

namespace lsm {

void bind_comm(py::module_& module) {
  ::bind_requests(module);
  ::bind_shared_memory(module);
  ::bind_mailbox(module);
}

}  // namespace lsm
