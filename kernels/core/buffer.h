// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Host memory that is handed out and comes back: a batch's rows are tens of megabytes, and fresh
// pages for each batch would cost as much as filling them.
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
  /// With all of `bytes` present, and room for `headroom` more.
  static std::unique_ptr<HostBlock> make(size_t bytes, size_t headroom);
  /// No more than twice what is asked for: a small batch must not pin a large block.
  bool suits(size_t bytes) const;
  /// Takes the blocks that returned first out of `idle`.
  static Pool<HostBlock>::Blocks trim(Pool<HostBlock>::Blocks& idle, size_t max_bytes);

  /// Makes the first `bytes` bytes present now, so that whoever writes them later takes no page
  /// faults.
  void populate(size_t bytes);

 private:
  std::byte* data_;
  size_t capacity_;
};

/// A batch's rows, and where they come from.
using HostBuffer = PooledBuffer<HostBlock>;
using BufferPool = Pool<HostBlock>;

}  // namespace lsm
