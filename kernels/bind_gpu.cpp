// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Exports what is known of GPUs, and sampling and gathers on one or by their twins.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/bind.h"
#include "kernels/bind_tensor.h"
#include "kernels/core/check.h"
#include "kernels/core/cuda_info.h"
#include "kernels/gather/gather.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/sample/gpu_sampler.h"

namespace py = pybind11;

namespace {

// Numbers of devices that are none: the twin, and the twin that goes backwards.
constexpr int kTwin = -1;
constexpr int kTwinBackwards = -2;

std::unique_ptr<lsm::DeviceSampler> make_sampler(const lsm::TensorView& host_indptr,
                                                 const lsm::TensorView& indptr,
                                                 const lsm::TensorView& indices,
                                                 std::vector<int64_t> fanouts,
                                                 const lsm::Sampling& sampling, int device,
                                                 double timeout_secs) {
  lsm::check_fanouts(fanouts);
  lsm::check_sampling(sampling, fanouts);
  const int64_t num_nodes =
      lsm::check_indptr(host_indptr.as<const int64_t>("host_indptr"), indices.num_elements());
  lsm::check_argument(indptr.dtype == host_indptr.dtype && indptr.num_elements() == num_nodes + 1 &&
                          indptr.is_contiguous(),
                      "indptr: expected the ", num_nodes + 1, " int64 of host_indptr");
  const bool has_wide_ids = indices.dtype == lsm::dtype_of<int64_t>();
  lsm::check_argument(
      (has_wide_ids || indices.dtype == lsm::dtype_of<int32_t>()) && indices.is_contiguous(),
      "indices: expected contiguous int32 or int64, got ", to_string(indices.dtype));
  const lsm::DeviceGraph graph{static_cast<const int64_t*>(indptr.data), indices.data, has_wide_ids,
                               num_nodes};
  py::gil_scoped_release release;
  if (device < 0) {
    return lsm::make_twin_sampler(graph, std::move(fanouts), sampling, device == kTwinBackwards);
  }
  return lsm::make_device_sampler(graph, std::move(fanouts), sampling, device, timeout_secs);
}

lsm::SampleSizes sample(lsm::DeviceSampler& sampler, const lsm::TensorView& seeds, uint64_t seed,
                        uint64_t epoch, uint64_t iteration, uint64_t rank, uint64_t step,
                        bool edge_ids) {
  const auto seed_span = seeds.as<const int64_t>("seeds");
  lsm::check_argument(seeds.num_dims == 1, "seeds: expected [n], got ", seeds.num_dims, " dims");
  py::gil_scoped_release release;
  return sampler.sample(seed_span, {seed, epoch, iteration, rank, step},
                        edge_ids ? lsm::EdgeIds::kRecord : lsm::EdgeIds::kLeaveOut);
}

void copy_to(lsm::DeviceSampler& sampler, const lsm::TensorView& n_id, const lsm::TensorView& edges,
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

void copy_edge_ids(lsm::DeviceSampler& sampler, const lsm::TensorView& out) {
  lsm::check_argument(out.dtype == lsm::dtype_of<int64_t>() && out.is_contiguous(),
                      "out: expected a contiguous int64 tensor");
  py::gil_scoped_release release;
  sampler.copy_edge_ids(static_cast<int64_t*>(out.data));
}

/// locks: none, device or system. references: [rows of source] uint32, all 0, or None.
void gather_on(const lsm::TensorView& source, const lsm::TensorView& ids,
               const lsm::TensorView& out, const std::optional<lsm::TensorView>& references,
               const std::string& locks, int device, intptr_t stream) {
  static constexpr std::array<const char*, 3> kLocks = {"none", "device", "system"};
  const auto found = std::find(kLocks.begin(), kLocks.end(), locks);
  lsm::check_argument(found != kLocks.end(), "locks: expected none, device or system, got '", locks,
                      "'");
  const auto kind = static_cast<lsm::LineLocks>(found - kLocks.begin());
  const auto source_bytes = source.as_bytes_on(device, "source");
  const auto out_bytes = out.as_bytes_on(device, "out");
  const auto id_bytes = ids.as_bytes_on(device, "ids");
  lsm::check_argument(ids.dtype == lsm::dtype_of<int64_t>() && source.num_dims == 2 &&
                          out.num_dims == 2 && out.dtype == source.dtype &&
                          out.shape[1] == source.shape[1] && out.shape[0] == ids.shape[0],
                      "expected source [N, dim], ids int64 [n] and out [n, dim]");
  lsm::DeviceGather gather{source_bytes.data(), reinterpret_cast<const int64_t*>(id_bytes.data()),
                           out_bytes.data(),    nullptr,
                           ids.shape[0],        source.shape[1] * source.dtype.bytes};
  if (kind != lsm::LineLocks::kNone) {
    lsm::check_argument(references && references->dtype.bytes == sizeof(uint32_t) &&
                            references->num_elements() == source.shape[0],
                        "references: expected ", source.shape[0], " elements of 4 bytes");
    gather.references =
        reinterpret_cast<uint32_t*>(references->as_bytes_on(device, "references").data());
  }
  py::gil_scoped_release release;
  if (device >= 0) return lsm::gather_on_device(gather, kind, device, stream);
  lsm::check_ids("ids", {gather.ids, static_cast<size_t>(gather.count)}, source.shape[0]);
  lsm::gather_by_twin(gather, kind);
}

}  // namespace

namespace lsm {

void bind_device_sampling(py::module_& module) {
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
  module.def("gather_on", &gather_on, py::arg("source"), py::arg("ids"), py::arg("out"),
             py::arg("references"), py::arg("locks"), py::arg("device"), py::arg("stream"));
  module.attr("TWIN") = kTwin;
  module.attr("TWIN_BACKWARDS") = kTwinBackwards;
  py::class_<SampleSizes>(module, "SampleSizes")
      .def_readonly("num_nodes", &SampleSizes::num_nodes)
      .def_readonly("num_edges", &SampleSizes::num_edges)
      .def_readonly("num_expanded", &SampleSizes::num_expanded)
      .def_readonly("num_sampled_nodes", &SampleSizes::num_sampled_nodes)
      .def_readonly("num_sampled_edges", &SampleSizes::num_sampled_edges);
  // The sampler reads the tensors' memory, so it keeps the tensors.
  py::class_<DeviceSampler>(module, "DeviceSampler")
      .def(py::init(&make_sampler), py::arg("host_indptr"), py::arg("indptr"), py::arg("indices"),
           py::arg("fanouts"), py::arg("sampling"), py::arg("device"), py::arg("timeout_secs"),
           py::keep_alive<1, 3>(), py::keep_alive<1, 4>())
      .def("sample", &sample, py::arg("seeds"), py::arg("seed"), py::arg("epoch"),
           py::arg("iteration"), py::arg("rank"), py::arg("step"), py::arg("edge_ids"))
      .def("copy_to", &copy_to, py::arg("n_id"), py::arg("edges"), py::arg("indptr"),
           py::arg("weights"))
      .def("copy_edge_ids", &copy_edge_ids, py::arg("out"));
}

}  // namespace lsm
