// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports plans, whose arrays torch reads in place.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/bind.h"
#include "cache/plan.h"
#include "cache/plan_array.h"
#include "kernels/bind_tensor.h"

namespace py = pybind11;

namespace {

using lsm::cache::Plan;
using lsm::cache::PlanArray;

struct Field {
  const char* name;
  std::vector<int64_t> Plan::* words;
  bool is_listed;              // of a plan of a GPU, only once it is read back
  bool has_next_uses = false;  // a plan of a GPU has none
};

constexpr std::array<Field, 16> kFields = {{
    {"ids", &Plan::ids, true},
    {"miss_position", &Plan::miss_position, true},
    {"miss_id", &Plan::miss_id, false},
    {"victim_position", &Plan::victim_position, false},
    {"victim_slot", &Plan::victim_slot, false},
    {"slot", &Plan::slot, true},
    {"evict_line", &Plan::evict_line, true},
    {"evict_slot", &Plan::evict_slot, true},
    {"evict_word", &Plan::evict_word, true, true},
    {"insert_position", &Plan::insert_position, true},
    {"insert_line", &Plan::insert_line, true},
    {"spill_position", &Plan::spill_position, true},
    {"spill_slot", &Plan::spill_slot, true},
    {"spill_word", &Plan::spill_word, true, true},
    {"tag_slot", &Plan::tag_slot, false, true},
    {"tag_word", &Plan::tag_word, false, true},
}};

/// `source`: the name of the sources, which are bytes. Else one of kFields. Blocks for a plan of a
/// GPU.
PlanArray array(const std::shared_ptr<Plan>& plan, const std::string& name) {
  if (name == "source") return PlanArray::of(plan, plan->source);
  const auto field = std::ranges::find(kFields, name, &Field::name);
  lsm::check_argument(field != kFields.end(), "array: a plan has no ", name);
  if (field->is_listed) {
    py::gil_scoped_release release;
    plan->list();
  }
  return PlanArray::of(plan, (*plan).*field->words);
}

std::vector<int64_t> words_of(const lsm::cache::Counters& counters) {
  const auto* words = reinterpret_cast<const int64_t*>(&counters);
  return {words, words + lsm::cache::kCounterNames.size()};
}

/// Blocks for a plan of a GPU.
std::vector<std::vector<int64_t>> counters_by_range(Plan& plan, const std::vector<int64_t>& ends,
                                                    const lsm::TensorView& row_of) {
  const auto rows = row_of.as<const int32_t>("row_of");
  py::gil_scoped_release release;
  plan.list();
  std::vector<std::vector<int64_t>> counts;
  for (const auto& each : plan.count_by_range(ends, rows)) counts.push_back(words_of(each));
  return counts;
}

/// The name of the first part in which two plans differ, of those that both have; empty if there is
/// none. Blocks for plans of a GPU.
std::string difference(Plan& plan, Plan& other) {
  plan.list();
  other.list();
  if (plan.source != other.source) return "source";
  const bool are_alike = (plan.on_gpu == nullptr) == (other.on_gpu == nullptr);
  for (const Field& field : kFields) {
    if (field.has_next_uses && !are_alike) continue;
    if (plan.*field.words != other.*field.words) return field.name;
  }
  return plan.counters == other.counters ? "" : "counters";
}

/// A plan that no planner made. `moves`: by the names of kFields; without ids it lists no ids of
/// its misses.
std::shared_ptr<Plan> make_plan(int64_t iteration, const lsm::TensorView& source,
                                const std::map<std::string, lsm::TensorView>& moves) {
  auto plan = std::make_shared<Plan>();
  plan->iteration = iteration;
  const auto sources = source.as<const uint8_t>("source");
  for (const uint8_t each : sources) plan->source.push_back(static_cast<lsm::RowSource>(each));
  for (const auto& [name, words] : moves) {
    const auto field = std::ranges::find(kFields, name, &Field::name);
    lsm::check_argument(field != kFields.end(), "moves: a plan has no ", name);
    const auto given = words.as<const int64_t>(field->name);
    ((*plan).*field->words).assign(given.begin(), given.end());
  }
  plan->count_sources();
  return plan;
}

}  // namespace

namespace lsm {

void bind_plan(py::module_& module) {
  py::class_<PlanArray>(module, "PlanArray", py::buffer_protocol())
      .def_buffer([](const PlanArray& array) {
        return py::buffer_info(const_cast<void*>(array.data), 1,
                               py::format_descriptor<uint8_t>::format(),
                               static_cast<py::ssize_t>(array.size));
      })
      .def_readonly("size", &PlanArray::size);
  py::class_<Plan, std::shared_ptr<Plan>>(module, "Plan")
      .def(py::init(&make_plan), py::kw_only(), py::arg("iteration"), py::arg("source"),
           py::arg("moves"))
      .def_readonly("iteration", &Plan::iteration)
      .def("array", &array, py::arg("name"))
      .def("difference", &difference, py::arg("other"), py::call_guard<py::gil_scoped_release>())
      .def("counters", [](const Plan& plan) { return words_of(plan.counters); })
      .def("count_by_range", &counters_by_range, py::arg("ends"), py::arg("row_of"));
}

}  // namespace lsm
