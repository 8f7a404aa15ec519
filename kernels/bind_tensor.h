// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Lets bound functions take TensorView where Python passes any object with __dlpack__ (torch,
// NumPy), and torch wrap native memory. Included by bind.cpp files only.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "kernels/core/dlpack_abi.h"
#include "kernels/core/tensor_view.h"

namespace lsm {

/// The capsule of __dlpack__() for `bytes` bytes at `data` on GPU `device`, or on the host if
/// negative: uint8, one dimension. Any thread may release `owner`, with the last tensor.
inline pybind11::capsule memory_capsule(std::shared_ptr<const void> owner, std::byte* data,
                                        int64_t bytes, int device) {
  struct Exported {
    dlpack::ManagedTensor managed;
    std::shared_ptr<const void> owner;
    int64_t shape;
  };
  auto exported = std::make_unique<Exported>(Exported{{}, std::move(owner), bytes});
  exported->managed.tensor = {.data = data,
                              .device_type = device < 0 ? dlpack::kCpu : dlpack::kCuda,
                              .device_id = device < 0 ? 0 : device,
                              .ndim = 1,
                              .type_code = dlpack::kUInt,
                              .type_bits = 8,
                              .type_lanes = 1,
                              .shape = &exported->shape,
                              .strides = nullptr,
                              .byte_offset = 0};
  exported->managed.manager = exported.get();
  exported->managed.deleter = [](dlpack::ManagedTensor* managed) {
    delete static_cast<Exported*>(managed->manager);
  };
  pybind11::capsule capsule(&exported->managed, "dltensor", [](PyObject* object) {
    // A consumer of the tensor renames the capsule, and later calls the deleter itself.
    if (!PyCapsule_IsValid(object, "dltensor")) return;
    auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(object, "dltensor"));
    managed->deleter(managed);
  });
  exported.release();
  return capsule;
}

}  // namespace lsm

namespace pybind11::detail {

template <>
struct type_caster<lsm::TensorView> {
  PYBIND11_TYPE_CASTER(lsm::TensorView, const_name("torch.Tensor | numpy.ndarray"));

  bool load(handle source, bool) {
    lsm::dlpack::Tensor view;
    if (view_on_host(source, &view)) {
      keeps_alive_ = reinterpret_borrow<object>(source);
      set_value(view);
      return true;
    }
    if (!hasattr(source, "__dlpack__")) return false;
    keeps_alive_ = source.attr("__dlpack__")();
    auto* managed = static_cast<lsm::dlpack::ManagedTensor*>(
        PyCapsule_GetPointer(keeps_alive_.ptr(), "dltensor"));
    if (managed == nullptr) throw error_already_set();
    set_value(managed->tensor);
    return true;
  }

 private:
  static bool is_on_host(const lsm::dlpack::Tensor& tensor) {
    return tensor.device_type == lsm::dlpack::kCpu || tensor.device_type == lsm::dlpack::kCudaHost;
  }

  /// Takes a view by the C functions of the object's type, if it has some (torch 2.10 and later):
  /// __dlpack__() is a Python method that takes 5 us. Not of GPU memory, for which __dlpack__()
  /// waits for the stream that writes it.
  static bool view_on_host(handle source, lsm::dlpack::Tensor* view) {
    PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(source.ptr()));
    static PyObject* const kName = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    const auto api_object = reinterpret_steal<object>(PyObject_GetAttr(type, kName));
    if (!api_object) {
      PyErr_Clear();
      return false;
    }
    if (requires_grad(source)) return false;  // __dlpack__() refuses it, the C functions do not
    const auto* api = static_cast<const lsm::dlpack::ExchangeApi*>(
        PyCapsule_GetPointer(api_object.ptr(), "dlpack_exchange_api"));
    if (api == nullptr || api->major_version != 1 || api->view_of_object(source.ptr(), view) != 0) {
      PyErr_Clear();  // __dlpack__() says why not
      return false;
    }
    return is_on_host(*view);
  }

  static bool requires_grad(handle source) {
    static PyObject* const kName = PyUnicode_InternFromString("requires_grad");
    const auto value = reinterpret_steal<object>(PyObject_GetAttr(source.ptr(), kName));
    if (!value) PyErr_Clear();
    return value.ptr() == Py_True;
  }

  void set_value(const lsm::dlpack::Tensor& tensor) {
    lsm::check_argument(tensor.ndim <= lsm::TensorView::kMaxDims, "expected at most ",
                        lsm::TensorView::kMaxDims, " dimensions, got ", tensor.ndim);
    value.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
    value.dtype = dtype(tensor);
    value.on_host = is_on_host(tensor);
    value.device = value.on_host ? -1 : tensor.device_id;
    value.num_dims = tensor.ndim;
    int64_t row_major = 1;
    for (int d = tensor.ndim - 1; d >= 0; --d) {
      value.shape[d] = tensor.shape[d];
      value.strides[d] = tensor.strides ? tensor.strides[d] : row_major;
      row_major *= tensor.shape[d];
    }
  }

  static lsm::DType dtype(const lsm::dlpack::Tensor& tensor) {
    const int bytes = tensor.type_lanes == 1 ? tensor.type_bits / 8 : 0;
    switch (tensor.type_code) {
      case lsm::dlpack::kInt:
        return {lsm::DTypeKind::kInt, bytes};
      case lsm::dlpack::kUInt:
        return {lsm::DTypeKind::kUInt, bytes};
      case lsm::dlpack::kFloat:
        return {lsm::DTypeKind::kFloat, bytes};
      case lsm::dlpack::kBfloat:
        return {lsm::DTypeKind::kBFloat, bytes};
      case lsm::dlpack::kBool:
        return {lsm::DTypeKind::kBool, bytes};
      default:
        return {};
    }
  }

  object keeps_alive_;  // holds the tensor's memory alive for the duration of the call
};

}  // namespace pybind11::detail
