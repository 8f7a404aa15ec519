// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The parts of the Python module that kernels/ exports, each in a file of its own
// (kernels/bind_*.cpp). Conversions and the release of the GIL happen there; everything else
// happens in the headers that they include.
#pragma once

#include <pybind11/pybind11.h>

namespace lsm {

/// Goes first: the other parts take its types and throw its errors.
void bind_core(pybind11::module_& module);
void bind_gather(pybind11::module_& module);
void bind_io(pybind11::module_& module);
void bind_nvme(pybind11::module_& module);
void bind_transfers(pybind11::module_& module);
void bind_sampling(pybind11::module_& module);
void bind_typed_sampling(pybind11::module_& module);
void bind_gpu_sampling(pybind11::module_& module);
void bind_store(pybind11::module_& module);
void bind_inference(pybind11::module_& module);
void bind_links(pybind11::module_& module);
void bind_embed(pybind11::module_& module);
void bind_gpu_embed(pybind11::module_& module);

}  // namespace lsm
