// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory of arrays that leave in the order in which they came, such as the window's batches. They
// are read at random, so many batches share a block that is large enough for huge pages: with small
// pages each read waits for the page table, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "kernels/core/buffer.h"

namespace lsm::cache {

/// Hands out arrays of trivial T that leave in the order in which they came. Arrays do not move.
template <class T>
class FifoSlabs {
 public:
  /// A new array of `count` elements, not initialised.
  T* push_back(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (slabs_.empty() || slabs_.back().used + bytes > slabs_.back().block->capacity()) {
      add_slab(bytes);
    }
    Slab& slab = slabs_.back();
    T* array = reinterpret_cast<T*>(slab.block->data() + slab.used);
    slab.used += bytes;
    ++slab.num_arrays;
    return array;
  }

  /// Takes back the oldest array.
  void pop_front() {
    if (--slabs_.front().num_arrays > 0) return;
    // Kept for the next slab: a window of constant length empties slabs as often as it fills them.
    if (spare_) num_bytes_ -= spare_->capacity();
    spare_ = std::move(slabs_.front().block);
    slabs_.pop_front();
  }

  /// Takes back the newest array, of `count` elements.
  void pop_back(size_t count) {
    Slab& slab = slabs_.back();
    slab.used -= count * sizeof(T);
    if (--slab.num_arrays > 0) return;
    num_bytes_ -= slab.block->capacity();
    slabs_.pop_back();
  }

  int64_t num_bytes() const { return static_cast<int64_t>(num_bytes_); }

 private:
  static constexpr size_t kMaxSlabBytes = size_t{32} << 20;

  struct Slab {
    std::unique_ptr<HostBlock> block;
    size_t used = 0;  // bytes
    int64_t num_arrays = 0;
  };

  /// A slab with room for `bytes`: a sixteenth of all memory, so that little of it stays empty.
  void add_slab(size_t bytes) {
    const size_t wanted = std::max(bytes, std::min(num_bytes_ / 16, kMaxSlabBytes));
    if (spare_ && (spare_->capacity() < bytes || spare_->capacity() > 2 * wanted + 4096)) {
      num_bytes_ -= spare_->capacity();
      spare_.reset();
    }
    if (!spare_) {
      spare_ = std::make_unique<HostBlock>(wanted);
      num_bytes_ += spare_->capacity();
    }
    slabs_.push_back({std::move(spare_)});
  }

  std::deque<Slab> slabs_;
  std::unique_ptr<HostBlock> spare_;  // null, or not in use
  size_t num_bytes_ = 0;              // of all slabs, including the spare one
};

}  // namespace lsm::cache
