// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports facts about GPUs, and sampling on one or by its twin.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_batch_name.h"
#include "kernels/bind_seeds.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/core/cuda_info.h"
#include "kernels/core/stream_pool.h"
#include "kernels/sample/gpu_sampler.h"

namespace py = pybind11;

namespace {

// Numbers of devices that are none: the twin, and the twin that goes backwards.
constexpr int kTwin = -1;
constexpr int kTwinBackwards = -2;

using NodeTimes = std::vector<std::optional<lsm::TensorView>>;

lsm::GpuGraph make_graph(std::vector<int64_t> num_nodes, const std::vector<lsm::TypedEdges>& edges,
                         const std::vector<lsm::TypedEdges>& placed, const lsm::Sampling& sampling,
                         bool disjoint, bool takes_last, NodeTimes node_times,
                         const NodeTimes& placed_node_times) {
  py::gil_scoped_release release;
  return lsm::make_gpu_graph(std::move(num_nodes), edges, sampling,
                             {disjoint, takes_last, std::move(node_times)},
                             {placed, placed_node_times});
}

std::unique_ptr<lsm::GpuSampler> make_sampler_on(const lsm::GpuGraph& graph, int device,
                                                 double timeout_secs) {
  py::gil_scoped_release release;
  if (device < 0) return lsm::make_twin_sampler(graph, device == kTwinBackwards);
  return lsm::make_gpu_sampler(graph, device, timeout_secs);
}

lsm::SampleSizes sample_on_gpu(lsm::GpuSampler& sampler, const lsm::BoundSeeds& seeds,
                               const lsm::BatchName& name, bool edge_ids) {
  const lsm::TypedSeeds typed = typed_seeds(seeds);
  py::gil_scoped_release release;
  return sampler.sample(typed, name, edge_ids ? lsm::EdgeIds::kRecord : lsm::EdgeIds::kLeaveOut);
}

void copy_to(lsm::GpuSampler& sampler, const lsm::TensorView& n_id, const lsm::TensorView& edges,
             const lsm::TensorView& indptr, const std::optional<lsm::TensorView>& weights,
             const std::optional<lsm::TensorView>& subgraph) {
  lsm::check_argument(
      !weights || (weights->dtype == lsm::dtype_of<float>() && weights->is_contiguous()),
      "weights: expected a contiguous float32 tensor");
  const auto words = [](const lsm::TensorView& tensor) {
    lsm::check_argument(tensor.dtype == lsm::dtype_of<int64_t>() && tensor.is_contiguous(),
                        "n_id, edges, indptr, subgraph: expected contiguous int64 tensors");
    return static_cast<int64_t*>(tensor.data);
  };
  const lsm::SampleOutput output{words(n_id), words(edges), words(indptr),
                                 weights ? static_cast<float*>(weights->data) : nullptr,
                                 subgraph ? words(*subgraph) : nullptr};
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
  py::class_<StreamPoolBytes>(module, "StreamPoolBytes")
      .def_readonly("reserved", &StreamPoolBytes::reserved)
      .def_readonly("used", &StreamPoolBytes::used);
  module.def("stream_pool_bytes", &stream_pool_bytes, py::arg("device"),
             py::call_guard<py::gil_scoped_release>());
  module.def("trim_memory", &trim_memory, py::arg("device"),
             py::call_guard<py::gil_scoped_release>());
  module.attr("TWIN") = kTwin;
  module.attr("TWIN_BACKWARDS") = kTwinBackwards;
  py::class_<SampleSizes>(module, "SampleSizes")
      .def_readonly("num_nodes", &SampleSizes::num_nodes)
      .def_readonly("num_edges", &SampleSizes::num_edges)
      .def_readonly("num_bounds", &SampleSizes::num_bounds)
      .def_readonly("num_sampled_nodes", &SampleSizes::num_sampled_nodes)
      .def_readonly("num_sampled_edges", &SampleSizes::num_sampled_edges);
  // Samplers read the memory of the placed tensors, which their edges keep.
  py::class_<GpuGraph>(module, "GpuGraph")
      .def(py::init(&make_graph), py::arg("num_nodes"), py::arg("edges"), py::arg("placed"),
           py::arg("sampling"), py::arg("disjoint") = false, py::arg("takes_last") = false,
           py::arg("node_times") = py::list(), py::arg("placed_node_times") = py::list(),
           py::keep_alive<1, 4>(), py::keep_alive<1, 9>());
  py::class_<GpuSampler>(module, "GpuSampler")
      .def(py::init(&make_sampler_on), py::arg("graph"), py::arg("device"), py::arg("timeout_secs"),
           py::keep_alive<1, 2>())
      .def("sample", &sample_on_gpu, py::arg("seeds"), py::arg("name"), py::arg("edge_ids"))
      .def("copy_to", &copy_to, py::arg("n_id"), py::arg("edges"), py::arg("indptr"),
           py::arg("weights"), py::arg("subgraph"))
      .def("copy_edge_ids", &copy_edge_ids, py::arg("out"))
      .def_property_readonly("stream", &GpuSampler::stream);
}

}  // namespace lsm
