// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports sampling of graphs with types.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_batch_name.h"
#include "kernels/bind_seeds.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/remade_after_fork.h"
#include "kernels/sample/typed_sampler.h"

namespace py = pybind11;

namespace {

lsm::TypedEdges make_edges(const lsm::TensorView& indptr, const lsm::TensorView& indices,
                           int source, int destination, std::vector<int64_t> fanouts,
                           std::optional<lsm::TensorView> weights,
                           std::optional<lsm::TensorView> times) {
  return {indptr, indices, source, destination, std::move(fanouts), weights, times};
}

using SamplerOfTypes = lsm::RemadeAfterFork<lsm::TypedSampler>;

std::unique_ptr<SamplerOfTypes> make_sampler_of_types(
    const std::vector<int64_t>& num_nodes, const std::vector<lsm::TypedEdges>& edges,
    int num_threads, const lsm::Sampling& sampling, bool disjoint, bool takes_last,
    const std::vector<std::optional<lsm::TensorView>>& node_times) {
  py::gil_scoped_release release;
  return std::make_unique<SamplerOfTypes>([=] {
    return lsm::make_typed_sampler(num_nodes, edges, num_threads, sampling,
                                   {disjoint, takes_last, node_times});
  });
}

using Pairs = std::tuple<lsm::TensorView, lsm::TensorView>;

lsm::TypedSubgraph sample_typed(SamplerOfTypes& of_process,
                                const std::vector<lsm::BoundSeeds>& seeds,
                                const lsm::BatchName& name, bool edge_ids,
                                const std::vector<Pairs>& excluded) {
  std::vector<lsm::TypedSeeds> typed;
  for (const lsm::BoundSeeds& given : seeds) typed.push_back(typed_seeds(given));
  std::vector<lsm::ExcludedPairs> pairs;
  for (const auto& [destinations, sources] : excluded) {
    pairs.push_back({destinations.as<const int64_t>("excluded destinations"),
                     sources.as<const int64_t>("excluded sources")});
  }
  lsm::TypedSampler& sampler = of_process.get();
  py::gil_scoped_release release;
  return sampler.sample(typed, name, edge_ids ? lsm::EdgeIds::kRecord : lsm::EdgeIds::kLeaveOut,
                        pairs);
}

}  // namespace

namespace lsm {

void bind_typed_sampling(py::module_& module) {
  py::class_<TypedSubgraph>(module, "TypedSubgraph")
      .def_readonly("n_id", &TypedSubgraph::n_id)
      .def_readonly("subgraph", &TypedSubgraph::subgraph)
      .def_readonly("edges", &TypedSubgraph::edges)
      .def_readonly("indptr", &TypedSubgraph::indptr)
      .def_readonly("edge_ids", &TypedSubgraph::edge_ids)
      .def_readonly("num_sampled_nodes", &TypedSubgraph::num_sampled_nodes)
      .def_readonly("num_sampled_edges", &TypedSubgraph::num_sampled_edges)
      .def_readonly("num_nodes", &TypedSubgraph::num_nodes)
      .def_readonly("num_edges", &TypedSubgraph::num_edges)
      .def_readonly("num_bounds", &TypedSubgraph::num_bounds);
  // Keeps the tensors: a GPU's samplers read their memory. The host's leave that to their caller.
  py::class_<TypedEdges>(module, "TypedEdges")
      .def(py::init(&make_edges), py::arg("indptr"), py::arg("indices"), py::arg("source"),
           py::arg("destination"), py::arg("fanouts"), py::arg("weights") = py::none(),
           py::arg("times") = py::none(), py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
           py::keep_alive<1, 7>(), py::keep_alive<1, 8>());
  py::class_<SamplerOfTypes>(module, "TypedSampler")
      .def(py::init(&make_sampler_of_types), py::arg("num_nodes"), py::arg("edges"),
           py::arg("num_threads"), py::arg("sampling"), py::arg("disjoint") = false,
           py::arg("takes_last") = false, py::arg("node_times") = py::list())
      .def("sample", &sample_typed, py::arg("seeds"), py::arg("name"), py::arg("edge_ids"),
           py::arg("excluded") = py::list());
}

}  // namespace lsm
