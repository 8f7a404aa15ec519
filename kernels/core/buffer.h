// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Pooled host memory: a batch's rows are tens of megabytes, and fresh pages for each batch would
// cost as much as filling them.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/core/pool.h"

namespace lsm {

/// Owns page-aligned anonymous memory. Large blocks ask for huge pages.
class HostBlock {
 public:
  explicit HostBlock(size_t bytes);
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t capacity() const { return capacity_; }

  // For Pool.
  static constexpr Trims kTrims = Trims::kOnReturn;
  /// A block with all of `bytes` present, and room for `headroom` more.
  static std::unique_ptr<HostBlock> make(size_t bytes, size_t headroom);
  /// True for a block of at most twice the requested size: a small batch must not hold a large
  /// block.
  bool suits(size_t bytes) const;
  /// Removes the blocks that returned first from `idle`.
  static Pool<HostBlock>::Blocks trim(Pool<HostBlock>::Blocks& idle, size_t max_bytes);

  /// Makes the first `bytes` bytes present now, so that later writes take no page faults.
  void populate(size_t bytes);

 private:
  std::byte* data_;
  size_t capacity_;
};

/// The memory of a batch's rows, from a pool.
using HostBuffer = PooledBuffer<HostBlock>;
using BufferPool = Pool<HostBlock>;

}  // namespace lsm
