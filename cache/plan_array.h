// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace lsm::cache {

/// Memory that torch wraps without a copy: bytes, like lsm.native's HostBuffer.
struct PlanArray {
  std::shared_ptr<const void> owner;
  const void* data;
  size_t size;

  /// The elements of `values`, which belong to `owner`.
  template <class T>
  static PlanArray of(std::shared_ptr<const void> owner, const std::vector<T>& values) {
    return {std::move(owner), values.data(), values.size() * sizeof(T)};
  }
};

}  // namespace lsm::cache
