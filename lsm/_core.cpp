// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The Python module lsm._core: the bindings of all native parts, which are in their bind*.cpp
// files.
#include <pybind11/pybind11.h>

#include "cache/bind.h"
#include "comm/bind.h"
#include "kernels/bind.h"
#include "kernels/core/cuda_info.h"

namespace py = pybind11;

namespace {

py::dict build_info() {
  py::dict info;
  info["compiler"] = LSM_COMPILER;
  info["build_type"] = LSM_BUILD_TYPE;
  info["io_uring"] = static_cast<bool>(LSM_HAS_IO_URING);
  info["cuda"] = lsm::has_cuda();
  return info;
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of LSM-GNN; import it through lsm.native.";
  lsm::bind_core(module);
  lsm::bind_gather(module);
  lsm::bind_sampling(module);
  lsm::bind_typed_sampling(module);
  lsm::bind_gpu_sampling(module);
  lsm::bind_nvme(module);
  lsm::bind_io(module);
  lsm::bind_transfers(module);
  lsm::bind_store(module);
  lsm::bind_inference(module);
  lsm::bind_links(module);
  lsm::bind_embed(module);
  lsm::bind_gpu_embed(module);
  lsm::bind_plan(module);  // names types of bind_cache()
  lsm::bind_cache(module);
  lsm::bind_executor(module);
  lsm::bind_gpu_executor(module);
  lsm::bind_comm(module);
  lsm::bind_gpu_comm(module);
  module.def("build_info", &build_info, "How this module was built.");
}
