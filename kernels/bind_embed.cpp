// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports what embeddings from disk need.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <utility>
#include <vector>

#include "kernels/bind.h"
#include "kernels/embed/order_search.h"

namespace py = pybind11;

namespace {

std::optional<std::vector<std::pair<int, int>>> find_order(int partitions, int buffer, int ranks,
                                                           int64_t waste, uint64_t seed,
                                                           int64_t restarts, int64_t nodes) {
  std::optional<std::vector<lsm::PartitionLoad>> turns;
  {
    py::gil_scoped_release release;
    turns = lsm::search_order({partitions, buffer, ranks}, waste, {seed, restarts, nodes});
  }
  if (!turns) return std::nullopt;
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [slot, partition] : *turns) pairs.emplace_back(slot, partition);
  return pairs;
}

}  // namespace

void lsm::bind_embed(py::module_& module) {
  module.def(
      "search_order", &find_order, py::kw_only(), py::arg("partitions"), py::arg("buffer"),
      py::arg("ranks"), py::arg("waste"), py::arg("seed"), py::arg("restarts"), py::arg("nodes"),
      "Turns (slot, partition loaded) of an order whose loads waste at most `waste`, or None.");
}
