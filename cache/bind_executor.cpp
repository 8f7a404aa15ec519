// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the executor of cache plans.
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cache/bind.h"
#include "cache/bind_targets.h"
#include "cache/executor.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/process_owned.h"

namespace py = pybind11;

namespace {

/// A plan and its batch, which the prefetching thread may use: Python may drop its own references
/// at any time.
struct OpenBatch {
  std::shared_ptr<lsm::cache::Plan> plan;
  py::object out;
};

struct HostExecutor {
  std::map<int64_t, OpenBatch> open_batches;  // by iteration; outlives the executor's thread
  lsm::CacheExecutor native;
};

using OwnedExecutor = lsm::ProcessOwned<HostExecutor>;

OwnedExecutor make_host_executor(lsm::Storage& storage, int64_t num_lines, int64_t victim_slots,
                                 const lsm::TensorView& static_rows,
                                 const lsm::TensorView& constant_rows, double timeout_secs,
                                 int64_t prefetch_iterations) {
  lsm::check_argument(num_lines >= 0, "num_lines: expected at least 0, got ", num_lines);
  lsm::check_argument(victim_slots >= 0, "victim_slots: expected at least 0, got ", victim_slots);
  const auto static_span = static_rows.as<int64_t>("static_rows");
  const auto constant_span = constant_rows.as<int64_t>("constant_rows");
  const lsm::CacheExecutor::Sizes sizes{num_lines, victim_slots, prefetch_iterations};
  py::gil_scoped_release release;
  // Not make_unique: the executor cannot be moved.
  return OwnedExecutor(
      new HostExecutor{{}, {sizes, storage, static_span, constant_span, timeout_secs}});
}

void open_batch(HostExecutor& executor, const std::shared_ptr<lsm::cache::Plan>& plan,
                const py::object& out) {
  const auto rows = out.cast<lsm::TensorView>().as_bytes("out");
  executor.open_batches.emplace(plan->iteration, OpenBatch{plan, out});
  executor.native.open_batch(plan->iteration, {plan->source, plan->slot, rows});
}

/// `staged`: None if the rows from storage are in `out`. `targets`: None, or tuples of tensors
/// (row_of, rows, place).
void replay_on_host(HostExecutor& executor, const lsm::cache::Plan& plan,
                    const lsm::TensorView& out, lsm::ThreadPool& pool,
                    const std::optional<lsm::TensorView>& staged, const py::object& targets) {
  const auto batch = out.as_bytes("out");
  const auto arrived = staged ? staged->as_bytes("staged") : std::span<std::byte>{};
  const std::vector<lsm::RowTargets> lists = lsm::row_targets(targets, executor.native.row_bytes());
  {
    py::gil_scoped_release release;
    if (targets.is_none())
      executor.native.replay(plan, arrived, batch, pool);
    else
      executor.native.replay_to(plan, arrived, batch, lists, pool);
  }
  auto& open = executor.open_batches;
  open.erase(open.begin(), open.upper_bound(plan.iteration));
}

void start_over(HostExecutor& executor) {
  {
    py::gil_scoped_release release;
    executor.native.start_over();
  }
  executor.open_batches.clear();
}

}  // namespace

namespace lsm {

void bind_executor(py::module_& module) {
  py::class_<HostExecutor, OwnedExecutor>(module, "CacheExecutor")
      .def(py::init(&make_host_executor), py::arg("storage"), py::kw_only(), py::arg("num_lines"),
           py::arg("victim_slots"), py::arg("static_rows"), py::arg("constant_rows"),
           py::arg("timeout_secs"), py::arg("prefetch_iterations") = 0)
      .def("open_batch", &::open_batch, py::arg("plan"), py::arg("out"))
      .def("replay", &replay_on_host, py::arg("plan"), py::kw_only(), py::arg("out"),
           py::arg("pool"), py::arg("staged") = py::none(), py::arg("targets") = py::none())
      .def("start_over", &::start_over)
      .def_property_readonly("num_lines",
                             [](const HostExecutor& e) { return e.native.num_lines(); })
      .def_property_readonly("victim_slots",
                             [](const HostExecutor& e) { return e.native.victim_slots(); })
      .def_property_readonly("prefetched_rows",
                             [](const HostExecutor& e) { return e.native.prefetched_rows(); });
}

}  // namespace lsm
