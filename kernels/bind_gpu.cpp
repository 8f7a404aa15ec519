// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports facts about GPUs, and sampling on one or by its twin.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_batch_name.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/core/cuda_info.h"
#include "kernels/sample/gpu_sampler.h"
#include "kernels/sample/sampler.h"

namespace py = pybind11;

namespace {

// Numbers of devices that are none: the twin, and the twin that goes backwards.
constexpr int kTwin = -1;
constexpr int kTwinBackwards = -2;

/// The edges of a type, and facts about them that a graph needs.
struct PlacedEdges {
  lsm::GpuEdges edges;
  int64_t num_destinations;
  bool has_wide_ids;
};

PlacedEdges make_edges(const lsm::TensorView& host_indptr, const lsm::TensorView& indptr,
                       const lsm::TensorView& indices, int source, int destination,
                       std::vector<int64_t> fanouts) {
  lsm::check_fanouts(fanouts);
  const int64_t num_nodes =
      lsm::check_indptr(host_indptr.as<const int64_t>("host_indptr"), indices.num_elements());
  lsm::check_argument(indptr.dtype == host_indptr.dtype && indptr.num_elements() == num_nodes + 1 &&
                          indptr.is_contiguous(),
                      "indptr: expected the ", num_nodes + 1, " int64 of host_indptr");
  const bool has_wide_ids = indices.dtype == lsm::dtype_of<int64_t>();
  lsm::check_argument(
      (has_wide_ids || indices.dtype == lsm::dtype_of<int32_t>()) && indices.is_contiguous(),
      "indices: expected contiguous int32 or int64, got ", to_string(indices.dtype));
  return {{static_cast<const int64_t*>(indptr.data), indices.data, std::move(fanouts), source,
           destination},
          num_nodes,
          has_wide_ids};
}

void check_type(int type, const std::vector<int64_t>& num_nodes) {
  lsm::check_argument(type >= 0 && type < static_cast<int>(num_nodes.size()),
                      "expected a type of nodes in [0, ", num_nodes.size(), "), got ", type);
}

lsm::GpuGraph make_graph(std::vector<int64_t> num_nodes, const std::vector<PlacedEdges>& edges,
                         int seed_type) {
  lsm::check_argument(!edges.empty(), "edges: expected at least one type");
  check_type(seed_type, num_nodes);
  lsm::GpuGraph graph{
      std::move(num_nodes), {}, edges.front().has_wide_ids, static_cast<size_t>(seed_type)};
  for (const PlacedEdges& type : edges) {
    check_type(type.edges.source, graph.num_nodes);
    check_type(type.edges.destination, graph.num_nodes);
    const int64_t num_destinations = graph.num_nodes[type.edges.destination];
    lsm::check_argument(type.num_destinations == num_destinations, "indptr: expected that of ",
                        num_destinations, " nodes, got ", type.num_destinations);
    lsm::check_argument(type.has_wide_ids == graph.has_wide_ids,
                        "indices: expected one dtype for all types of edges");
    lsm::check_argument(type.edges.fanouts.size() == edges.front().edges.fanouts.size(),
                        "num_neighbors: expected as many hops for each type of edges");
    graph.edges.push_back(type.edges);
  }
  return graph;
}

std::unique_ptr<lsm::GpuSampler> make_sampler(std::vector<int64_t> num_nodes,
                                              const std::vector<PlacedEdges>& edges, int seed_type,
                                              const lsm::Sampling& sampling, int device,
                                              double timeout_secs) {
  const lsm::GpuGraph graph = make_graph(std::move(num_nodes), edges, seed_type);
  for (const lsm::GpuEdges& type : graph.edges) lsm::check_sampling(sampling, type.fanouts);
  lsm::check_argument(!std::holds_alternative<lsm::LadiesSampling>(sampling) ||
                          (graph.num_nodes.size() == 1 && graph.edges.size() == 1),
                      "ladies: samples graphs of one type");
  py::gil_scoped_release release;
  if (device < 0) return lsm::make_twin_sampler(graph, sampling, device == kTwinBackwards);
  return lsm::make_gpu_sampler(graph, sampling, device, timeout_secs);
}

lsm::SampleSizes sample(lsm::GpuSampler& sampler, const lsm::TensorView& seeds,
                        const lsm::BatchName& name, bool edge_ids) {
  const auto seed_span = seeds.as<const int64_t>("seeds");
  lsm::check_argument(seeds.num_dims == 1, "seeds: expected [n], got ", seeds.num_dims, " dims");
  py::gil_scoped_release release;
  return sampler.sample(seed_span, name,
                        edge_ids ? lsm::EdgeIds::kRecord : lsm::EdgeIds::kLeaveOut);
}

void copy_to(lsm::GpuSampler& sampler, const lsm::TensorView& n_id, const lsm::TensorView& edges,
             const lsm::TensorView& indptr, const std::optional<lsm::TensorView>& weights) {
  lsm::check_argument(
      !weights || (weights->dtype == lsm::dtype_of<float>() && weights->is_contiguous()),
      "weights: expected a contiguous float32 tensor");
  const auto words = [](const lsm::TensorView& tensor) {
    lsm::check_argument(tensor.dtype == lsm::dtype_of<int64_t>() && tensor.is_contiguous(),
                        "n_id, edges, indptr: expected contiguous int64 tensors");
    return static_cast<int64_t*>(tensor.data);
  };
  const lsm::SampleOutput output{words(n_id), words(edges), words(indptr),
                                 weights ? static_cast<float*>(weights->data) : nullptr};
  py::gil_scoped_release release;
  sampler.copy_to(output);
}

void copy_edge_ids(lsm::GpuSampler& sampler, const lsm::TensorView& out) {
  lsm::check_argument(out.dtype == lsm::dtype_of<int64_t>() && out.is_contiguous(),
                      "out: expected a contiguous int64 tensor");
  py::gil_scoped_release release;
  sampler.copy_edge_ids(static_cast<int64_t*>(out.data));
}

}  // namespace

namespace lsm {

void bind_gpu_sampling(py::module_& module) {
  py::class_<GpuInfo>(module, "GpuInfo")
      .def_readonly("name", &GpuInfo::name)
      .def_readonly("capability_major", &GpuInfo::capability_major)
      .def_readonly("capability_minor", &GpuInfo::capability_minor)
      .def_readonly("total_bytes", &GpuInfo::total_bytes)
      .def_readonly("bus_id", &GpuInfo::bus_id);
  py::class_<CudaInfo>(module, "CudaInfo")
      .def_readonly("toolkit_version", &CudaInfo::toolkit_version)
      .def_readonly("driver_version", &CudaInfo::driver_version)
      .def_readonly("problem", &CudaInfo::problem)
      .def_readonly("gpus", &CudaInfo::gpus);
  module.def("find_cuda", &find_cuda, py::call_guard<py::gil_scoped_release>());
  module.attr("TWIN") = kTwin;
  module.attr("TWIN_BACKWARDS") = kTwinBackwards;
  py::class_<SampleSizes>(module, "SampleSizes")
      .def_readonly("num_nodes", &SampleSizes::num_nodes)
      .def_readonly("num_edges", &SampleSizes::num_edges)
      .def_readonly("num_bounds", &SampleSizes::num_bounds)
      .def_readonly("num_sampled_nodes", &SampleSizes::num_sampled_nodes)
      .def_readonly("num_sampled_edges", &SampleSizes::num_sampled_edges);
  // The sampler reads the tensors' memory, so the edges keep the tensors, and it keeps the edges.
  py::class_<PlacedEdges>(module, "GpuEdges")
      .def(py::init(&make_edges), py::arg("host_indptr"), py::arg("indptr"), py::arg("indices"),
           py::arg("source"), py::arg("destination"), py::arg("fanouts"), py::keep_alive<1, 3>(),
           py::keep_alive<1, 4>());
  py::class_<GpuSampler>(module, "GpuSampler")
      .def(py::init(&make_sampler), py::arg("num_nodes"), py::arg("edges"), py::arg("seed_type"),
           py::arg("sampling"), py::arg("device"), py::arg("timeout_secs"), py::keep_alive<1, 3>())
      .def("sample", &sample, py::arg("seeds"), py::arg("name"), py::arg("edge_ids"))
      .def("copy_to", &copy_to, py::arg("n_id"), py::arg("edges"), py::arg("indptr"),
           py::arg("weights"))
      .def("copy_edge_ids", &copy_edge_ids, py::arg("out"));
}

}  // namespace lsm
