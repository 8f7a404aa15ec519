// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the executor of cache plans.
#include <pybind11/stl.h>

#include <map>

#include "cache/bind.h"
#include "cache/executor.h"
#include "kernels/bind_tensor.h"

namespace py = pybind11;

namespace {

/// The executor, and the tensors that its prefetching thread may use: Python may drop its own
/// references at any time.
struct Executor {
  std::map<int64_t, py::tuple> open_batches;  // by iteration; outlives the executor's thread
  lsm::CacheExecutor native;
};

std::unique_ptr<Executor> make_executor(lsm::Storage& storage, int64_t num_lines,
                                        int64_t victim_slots, const lsm::TensorView& static_ids,
                                        const lsm::TensorView& constant_ids, double timeout_secs,
                                        int64_t prefetch_iterations) {
  lsm::check_argument(num_lines >= 0, "num_lines: expected at least 0, got ", num_lines);
  lsm::check_argument(victim_slots >= 0, "victim_slots: expected at least 0, got ", victim_slots);
  const auto static_span = static_ids.as<int64_t>("static_ids");
  const auto constant_span = constant_ids.as<int64_t>("constant_ids");
  const lsm::CacheExecutor::Sizes sizes{num_lines, victim_slots, prefetch_iterations};
  py::gil_scoped_release release;
  // Not make_unique: the executor cannot be moved.
  return std::unique_ptr<Executor>(
      new Executor{{}, {sizes, storage, static_span, constant_span, timeout_secs}});
}

void open_batch(Executor& executor, int64_t iteration, const py::object& source,
                const py::object& slot, const py::object& out) {
  const lsm::VictimPrefetcher::Batch batch{
      source.cast<lsm::TensorView>().as<uint8_t>("source"),
      slot.cast<lsm::TensorView>().as<int64_t>("slot"),
      out.cast<lsm::TensorView>().as_bytes("out"),
  };
  executor.open_batches.emplace(iteration, py::make_tuple(source, slot, out));
  executor.native.open_batch(iteration, batch);
}

void replay(Executor& executor, int64_t iteration, const lsm::TensorView& source,
            const lsm::TensorView& slot, const lsm::TensorView& evict_line,
            const lsm::TensorView& evict_slot, const lsm::TensorView& evict_word,
            const lsm::TensorView& insert_position, const lsm::TensorView& insert_line,
            const lsm::TensorView& spill_position, const lsm::TensorView& spill_slot,
            const lsm::TensorView& spill_word, const lsm::TensorView& out, lsm::ThreadPool& pool) {
  const lsm::PlanMoves moves{
      .iteration = iteration,
      .source = source.as<uint8_t>("source"),
      .slot = slot.as<int64_t>("slot"),
      .evict_line = evict_line.as<int64_t>("evict_line"),
      .evict_slot = evict_slot.as<int64_t>("evict_slot"),
      .evict_word = evict_word.as<int64_t>("evict_word"),
      .insert_position = insert_position.as<int64_t>("insert_position"),
      .insert_line = insert_line.as<int64_t>("insert_line"),
      .spill_position = spill_position.as<int64_t>("spill_position"),
      .spill_slot = spill_slot.as<int64_t>("spill_slot"),
      .spill_word = spill_word.as<int64_t>("spill_word"),
  };
  const auto batch = out.as_bytes("out");
  {
    py::gil_scoped_release release;
    executor.native.replay(moves, batch, pool);
  }
  auto& open = executor.open_batches;
  open.erase(open.begin(), open.upper_bound(iteration));
}

void start_over(Executor& executor) {
  {
    py::gil_scoped_release release;
    executor.native.start_over();
  }
  executor.open_batches.clear();
}

}  // namespace

namespace lsm {

void bind_executor(py::module_& module) {
  py::class_<Executor>(module, "CacheExecutor")
      .def(py::init(&make_executor), py::arg("storage"), py::kw_only(), py::arg("num_lines"),
           py::arg("victim_slots"), py::arg("static_ids"), py::arg("constant_ids"),
           py::arg("timeout_secs"), py::arg("prefetch_iterations") = 0)
      .def("open_batch", &::open_batch, py::arg("iteration"), py::arg("source"), py::arg("slot"),
           py::arg("out"))
      .def("replay", &::replay, py::kw_only(), py::arg("iteration"), py::arg("source"),
           py::arg("slot"), py::arg("evict_line"), py::arg("evict_slot"), py::arg("evict_word"),
           py::arg("insert_position"), py::arg("insert_line"), py::arg("spill_position"),
           py::arg("spill_slot"), py::arg("spill_word"), py::arg("out"), py::arg("pool"))
      .def("start_over", &::start_over)
      .def_property_readonly("num_lines", [](const Executor& e) { return e.native.num_lines(); })
      .def_property_readonly("victim_slots",
                             [](const Executor& e) { return e.native.victim_slots(); })
      .def_property_readonly("prefetched_rows",
                             [](const Executor& e) { return e.native.prefetched_rows(); });
}

}  // namespace lsm
