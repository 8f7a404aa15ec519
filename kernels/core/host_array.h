// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kernels/core/buffer.h"

namespace lsm {

/// An array of trivial T. Keeps its memory when it shrinks; new elements are not initialised.
template <class T>
class HostArray {
 public:
  /// Makes room for `count` elements. Loses the contents if it needs new memory.
  void resize_discarding(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (block_ && bytes <= block_->capacity()) return;
    block_.reset();  // first, so that old and new are not held at once
    block_ = std::make_unique<HostBlock>(bytes + bytes / 8);
  }

  T* data() const { return reinterpret_cast<T*>(block_->data()); }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  std::unique_ptr<HostBlock> block_;
};

}  // namespace lsm
