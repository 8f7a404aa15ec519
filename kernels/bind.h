// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The parts of the Python module that live in files of their own (kernels/bind_*.cpp).
#pragma once

#include <pybind11/pybind11.h>

namespace lsm {

void bind_io(pybind11::module_& module);
void bind_nvme(pybind11::module_& module);
void bind_sampling(pybind11::module_& module);
void bind_device_sampling(pybind11::module_& module);
void bind_store(pybind11::module_& module);

}  // namespace lsm
