// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the executor of cache plans.
#include <pybind11/stl.h>

#include <memory>

#include "cache/bind.h"
#include "cache/executor.h"
#include "kernels/bind_tensor.h"

namespace py = pybind11;

namespace {

std::unique_ptr<lsm::CacheExecutor> make_executor(lsm::Storage& storage, int64_t num_lines,
                                                  int64_t victim_slots,
                                                  const lsm::TensorView& static_ids,
                                                  const lsm::TensorView& constant_ids,
                                                  double timeout_secs) {
  lsm::check_argument(num_lines >= 0, "num_lines: expected at least 0, got ", num_lines);
  lsm::check_argument(victim_slots >= 0, "victim_slots: expected at least 0, got ", victim_slots);
  const auto static_span = static_ids.as<int64_t>("static_ids");
  const auto constant_span = constant_ids.as<int64_t>("constant_ids");
  py::gil_scoped_release release;
  return std::make_unique<lsm::CacheExecutor>(lsm::CacheExecutor::Sizes{num_lines, victim_slots},
                                              storage, static_span, constant_span, timeout_secs);
}

void replay(lsm::CacheExecutor& executor, const lsm::TensorView& source,
            const lsm::TensorView& slot, const lsm::TensorView& evict_line,
            const lsm::TensorView& evict_slot, const lsm::TensorView& insert_position,
            const lsm::TensorView& insert_line, const lsm::TensorView& spill_position,
            const lsm::TensorView& spill_slot, const lsm::TensorView& out, lsm::ThreadPool& pool) {
  const lsm::PlanMoves moves{
      .source = source.as<uint8_t>("source"),
      .slot = slot.as<int64_t>("slot"),
      .evict_line = evict_line.as<int64_t>("evict_line"),
      .evict_slot = evict_slot.as<int64_t>("evict_slot"),
      .insert_position = insert_position.as<int64_t>("insert_position"),
      .insert_line = insert_line.as<int64_t>("insert_line"),
      .spill_position = spill_position.as<int64_t>("spill_position"),
      .spill_slot = spill_slot.as<int64_t>("spill_slot"),
  };
  const auto batch = out.as_bytes("out");
  py::gil_scoped_release release;
  executor.replay(moves, batch, pool);
}

}  // namespace

namespace lsm {

void bind_executor(py::module_& module) {
  py::class_<CacheExecutor>(module, "CacheExecutor")
      .def(py::init(&make_executor), py::arg("storage"), py::kw_only(), py::arg("num_lines"),
           py::arg("victim_slots"), py::arg("static_ids"), py::arg("constant_ids"),
           py::arg("timeout_secs"))
      .def("replay", &::replay, py::arg("source"), py::arg("slot"), py::arg("evict_line"),
           py::arg("evict_slot"), py::arg("insert_position"), py::arg("insert_line"),
           py::arg("spill_position"), py::arg("spill_slot"), py::arg("out"), py::arg("pool"))
      .def_property_readonly("num_lines", &CacheExecutor::num_lines)
      .def_property_readonly("victim_slots", &CacheExecutor::victim_slots);
}

}  // namespace lsm
