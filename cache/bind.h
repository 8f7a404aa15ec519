// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace lsm {

void bind_cache(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_executor(pybind11::module_& module);
void bind_gpu_executor(pybind11::module_& module);

}  // namespace lsm
