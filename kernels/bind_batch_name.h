// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Lets bound functions take BatchName where Python passes an lsm.sampler.name.BatchName, a tuple.
#pragma once

#include <pybind11/pybind11.h>

#include "kernels/sample/sampling.h"

namespace pybind11::detail {

template <>
struct type_caster<lsm::BatchName> {
  PYBIND11_TYPE_CASTER(lsm::BatchName, const_name("tuple[int, int, int, int, int]"));

  bool load(handle source, bool) {
    uint64_t* const fields[] = {&value.seed, &value.epoch, &value.iteration, &value.rank,
                                &value.step};
    if (!PyTuple_Check(source.ptr()) || PyTuple_GET_SIZE(source.ptr()) != std::ssize(fields)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < std::ssize(fields); ++i) {
      make_caster<uint64_t> number;
      if (!number.load(PyTuple_GET_ITEM(source.ptr(), i), false)) return false;
      *fields[i] = cast_op<uint64_t>(number);
    }
    return true;
  }
};

}  // namespace pybind11::detail
