// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A non-owning view of a tensor from Python, and its checks. The caller keeps the tensor alive
// while the view is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "kernels/core/check.h"

namespace lsm {

enum class DTypeKind : uint8_t { kInt, kUInt, kFloat, kBFloat, kBool, kOther };

struct DType {
  DTypeKind kind = DTypeKind::kOther;
  int bytes = 0;
  friend bool operator==(const DType&, const DType&) = default;
};

inline std::string to_string(DType dtype) {
  static constexpr const char* kNames[] = {"int", "uint", "float", "bfloat", "bool", "other"};
  if (dtype.kind == DTypeKind::kBool) return "bool";
  return kNames[static_cast<int>(dtype.kind)] + std::to_string(8 * dtype.bytes);
}

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) return {DTypeKind::kBool, 1};
  if constexpr (std::is_floating_point_v<U>) return {DTypeKind::kFloat, sizeof(U)};
  if constexpr (std::is_signed_v<U>) return {DTypeKind::kInt, sizeof(U)};
  return {DTypeKind::kUInt, sizeof(U)};
}

struct TensorView {
  static constexpr int kMaxDims = 4;

  void* data = nullptr;
  DType dtype;
  bool on_host = true;
  int device = -1;  // the GPU's number; -1: host memory
  int num_dims = 0;
  std::array<int64_t, kMaxDims> shape{};
  std::array<int64_t, kMaxDims> strides{};  // in elements

  int64_t num_elements() const {
    int64_t count = 1;
    for (int d = 0; d < num_dims; ++d) count *= shape[d];
    return count;
  }

  bool is_contiguous() const {
    if (num_elements() == 0) return true;
    int64_t expected = 1;
    for (int d = num_dims - 1; d >= 0; --d) {
      if (shape[d] != 1 && strides[d] != expected) return false;
      expected *= shape[d];
    }
    return true;
  }

  /// The elements as a span. Throws ArgumentError, which names the argument, unless the tensor is a
  /// contiguous host tensor of T.
  template <class T>
  std::span<T> as(const char* name) const {
    check_argument(on_host, name, ": expected a host tensor, got one on a device");
    check_argument(dtype == dtype_of<T>(), name, ": expected dtype ", to_string(dtype_of<T>()),
                   ", got ", to_string(dtype));
    check_argument(is_contiguous(), name, ": expected a contiguous tensor; call .contiguous()");
    return {static_cast<T*>(data), static_cast<size_t>(num_elements())};
  }

  /// The bytes of a contiguous host tensor of any dtype.
  std::span<std::byte> as_bytes(const char* name) const {
    check_argument(on_host, name, ": expected a host tensor, got one on a device");
    check_argument(is_contiguous(), name, ": expected a contiguous tensor; call .contiguous()");
    return {static_cast<std::byte*>(data), static_cast<size_t>(num_elements()) * dtype.bytes};
  }

  /// The bytes of a contiguous tensor on GPU `number`, or of a host tensor if `number` is negative.
  std::span<std::byte> as_bytes_on(int number, const char* name) const {
    if (number < 0) return as_bytes(name);
    check_argument(!on_host && device == number, name, ": expected a tensor on cuda:", number,
                   ", got one on ", on_host ? "the host" : concat("cuda:", device));
    check_argument(is_contiguous(), name, ": expected a contiguous tensor; call .contiguous()");
    return {static_cast<std::byte*>(data), static_cast<size_t>(num_elements()) * dtype.bytes};
  }
};

}  // namespace lsm
