// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports the planner, the simulation of whole traces and the metadata word.
#include "cache/bind.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cache/gpu_set_cache.h"
#include "cache/metadata_word.h"
#include "cache/plan_array.h"
#include "cache/planner.h"
#include "cache/simulate.h"
#include "kernels/bind_tensor.h"

namespace py = pybind11;

namespace {

namespace cache = lsm::cache;

std::span<const int64_t> ids_of(const lsm::TensorView& ids, const char* name) {
  const auto span = ids.as<const int64_t>(name);
  lsm::check_argument(ids.num_dims == 1, name, ": expected [n], got ", ids.num_dims, " dims");
  return span;
}

std::vector<std::span<const int64_t>> batches_of(const std::vector<lsm::TensorView>& batches) {
  std::vector<std::span<const int64_t>> spans;
  spans.reserve(batches.size());
  for (const lsm::TensorView& batch : batches) spans.push_back(ids_of(batch, "ids"));
  return spans;
}

std::span<const float> scores_of(const lsm::TensorView& scores) {
  const auto span = scores.as<const float>("scores");
  lsm::check_argument(scores.num_dims == 1, "scores: expected [N], got ", scores.num_dims, " dims");
  return span;
}

cache::PlannerInput input_of(const std::optional<lsm::TensorView>& scores,
                             const std::optional<lsm::TensorView>& static_ids,
                             const std::optional<lsm::TensorView>& constant_ids) {
  cache::PlannerInput input;
  if (scores) input.scores = scores_of(*scores);
  if (static_ids) input.static_ids = ids_of(*static_ids, "static_ids");
  if (constant_ids) input.constant_ids = ids_of(*constant_ids, "constant_ids");
  return input;
}

/// The names of SetCachePlace, in its order.
constexpr std::array<const char*, 4> kSetsPlaces = {"host", "twin", "twin_backwards", "device"};

cache::SetCachePlace sets_place(const std::string& name) {
  const auto found = std::find(kSetsPlaces.begin(), kSetsPlaces.end(), name);
  lsm::check_argument(found != kSetsPlaces.end(),
                      "sets: expected host, twin, twin_backwards or device, got '", name, "'");
  return static_cast<cache::SetCachePlace>(found - kSetsPlaces.begin());
}

/// Null for the host's.
std::unique_ptr<cache::GpuSetCache> make_gpu_set_cache_at(cache::SetCachePlace place, int device,
                                                          const cache::PlannerConfig& config,
                                                          cache::Scores scores) {
  constexpr double kTimeoutSecs = 60;
  if (place == cache::SetCachePlace::kHost) return nullptr;
  cache::check_config(config);
  if (place != cache::SetCachePlace::kGpu) return cache::make_twin_set_cache(config, scores, place);
  return cache::make_gpu_set_cache(config, scores, device, kTimeoutSecs);
}

std::unique_ptr<cache::Planner> make_planner(
    const cache::PlannerConfig& config, const std::optional<lsm::TensorView>& scores,
    const std::optional<lsm::TensorView>& static_ids,
    const std::optional<lsm::TensorView>& constant_ids,
    const std::optional<std::vector<lsm::TensorView>>& trace, std::shared_ptr<lsm::ThreadPool> pool,
    const std::string& sets, int device) {
  cache::PlannerInput input = input_of(scores, static_ids, constant_ids);
  const cache::SetCachePlace place = sets_place(sets);
  const auto batches = batches_of(trace.value_or(std::vector<lsm::TensorView>{}));
  input.trace = batches;
  py::gil_scoped_release release;
  return std::make_unique<cache::Planner>(
      config, input, std::move(pool), make_gpu_set_cache_at(place, device, config, input.scores));
}

void push(cache::Planner& planner, const lsm::TensorView& ids,
          const std::optional<lsm::TensorView>& rank_starts) {
  const auto span = ids_of(ids, "ids");
  const auto starts =
      rank_starts ? ids_of(*rank_starts, "rank_starts") : std::span<const int64_t>{};
  lsm::check_argument(!rank_starts || !starts.empty(), "rank_starts: expected one per rank, got 0");
  py::gil_scoped_release release;
  planner.push(span, starts);
}

void set_scores(cache::Planner& planner, const lsm::TensorView& scores) {
  const auto span = scores_of(scores);
  py::gil_scoped_release release;
  planner.set_scores(span);
}

std::shared_ptr<cache::Plan> plan(cache::Planner& planner) {
  py::gil_scoped_release release;
  auto plan = std::make_shared<cache::Plan>();
  planner.plan(plan.get());
  return plan;
}

/// Counters of each iteration, in the order of COUNTER_NAMES, one after the other.
cache::PlanArray words_of(std::vector<cache::Counters> counters) {
  const auto kept = std::make_shared<const std::vector<cache::Counters>>(std::move(counters));
  return cache::PlanArray::of(kept, *kept);
}

cache::PlanArray simulate(const std::vector<lsm::TensorView>& batches,
                          const cache::PlannerConfig& config,
                          const std::optional<lsm::TensorView>& scores,
                          const std::optional<lsm::TensorView>& static_ids,
                          const std::optional<lsm::TensorView>& constant_ids,
                          std::shared_ptr<lsm::ThreadPool> pool) {
  const cache::PlannerInput input = input_of(scores, static_ids, constant_ids);
  const auto spans = batches_of(batches);
  py::gil_scoped_release release;
  return words_of(cache::simulate(spans, config, input, std::move(pool)));
}

cache::PlanArray simulate_optimal(const std::vector<lsm::TensorView>& batches, int64_t num_lines,
                                  const std::optional<lsm::TensorView>& static_ids,
                                  const std::optional<lsm::TensorView>& constant_ids) {
  lsm::check_argument(num_lines > 0, "num_lines: expected at least 1, got ", num_lines);
  const cache::PlannerInput input = input_of(std::nullopt, static_ids, constant_ids);
  const auto spans = batches_of(batches);
  py::gil_scoped_release release;
  return words_of(cache::simulate_optimal(spans, num_lines,
                                          cache::index_ids("static_ids", input.static_ids),
                                          cache::index_ids("constant_ids", input.constant_ids)));
}

void bind_config(py::module_& module) {
  using cache::PlannerConfig;
  py::class_<PlannerConfig>(module, "PlannerConfig")
      .def(py::init<>())
      .def_readwrite("num_lines", &PlannerConfig::num_lines)
      .def_readwrite("ways", &PlannerConfig::ways)
      .def_readwrite("policy", &PlannerConfig::policy)
      .def_readwrite("window", &PlannerConfig::window)
      .def_readwrite("update_period", &PlannerConfig::update_period)
      .def_readwrite("near_fraction", &PlannerConfig::near_fraction)
      .def_readwrite("victim_mode", &PlannerConfig::victim_mode)
      .def_readwrite("victim_rows", &PlannerConfig::victim_rows)
      .def_readwrite("seed", &PlannerConfig::seed)
      .def_readwrite("num_nodes", &PlannerConfig::num_nodes);
  module.def("check_planner_config", &cache::check_config, py::arg("config"));
  module.def("planner_set_bytes", &cache::set_bytes_of, py::arg("config"), py::arg("on_gpu"));
  module.def("policy_names", &cache::policy_names);
  module.def("needs_window", &cache::needs_window, py::arg("policy"));
  module.def("needs_score", &cache::needs_score, py::arg("policy"));
  module.attr("COUNTER_NAMES") =
      std::vector<std::string>(cache::kCounterNames.begin(), cache::kCounterNames.end());
}

void bind_planner(py::module_& module) {
  // The planner reads the memory of the scores set last, whose tensor its caller keeps; it copies
  // everything else.
  py::class_<cache::Planner>(module, "Planner")
      .def(py::init(&make_planner), py::arg("config"), py::arg("scores"), py::arg("static_ids"),
           py::arg("constant_ids"), py::arg("trace"), py::arg("pool"), py::arg("sets") = "host",
           py::arg("device") = 0)
      .def("push", &push, py::arg("ids"), py::arg("rank_starts") = py::none())
      .def("set_scores", &set_scores, py::arg("scores"))
      .def("plan", &plan)
      .def_property_readonly("num_pushed", &cache::Planner::num_pushed)
      .def_property_readonly("num_planned", &cache::Planner::num_planned)
      .def_property_readonly("line_bytes", &cache::Planner::line_bytes)
      .def_property_readonly("window_bytes", &cache::Planner::window_bytes)
      .def_property_readonly("victim_bytes", &cache::Planner::victim_bytes)
      .def_property_readonly("window_entries", &cache::Planner::window_entries);
  module.def("simulate_cache", &simulate, py::arg("batches"), py::arg("config"), py::arg("scores"),
             py::arg("static_ids"), py::arg("constant_ids"), py::arg("pool"));
  module.def("simulate_optimal", &simulate_optimal, py::arg("batches"), py::arg("num_lines"),
             py::arg("static_ids"), py::arg("constant_ids"));
}

void bind_metadata(py::module_& module) {
  module.def("check_metadata_limits", &cache::check_metadata_limits, py::arg("window"),
             py::arg("world_size"), py::arg("batch_rows"));
  module.def(
      "pack_metadata",
      [](uint64_t next_use, uint64_t rank, uint64_t position) {
        return cache::pack_metadata({next_use, rank, position});
      },
      py::arg("next_use"), py::arg("rank"), py::arg("position"));
  module.def(
      "unpack_metadata",
      [](uint64_t word, uint64_t t) {
        const cache::RowMetadata row = cache::unpack_metadata(word, t);
        return std::make_tuple(row.next_use, row.rank, row.position);
      },
      py::arg("word"), py::arg("t"));
}

}  // namespace

namespace lsm {

void bind_cache(py::module_& module) {
  ::bind_config(module);
  ::bind_planner(module);
  ::bind_metadata(module);
}

}  // namespace lsm
