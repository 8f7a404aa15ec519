// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Page-locked memory of exactly the size that is asked for. torch's own is a power of two: 17 GB of
// topology would lock 32 GB.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/core/buffer.h"
#include "kernels/core/pool.h"

namespace lsm {

/// Keeps memory that there is page-locked: every GPU reads and writes it at its own address. Throws
/// std::runtime_error where no more can be locked, and in a build without CUDA.
class PageLock {
 public:
  /// `device`: a GPU that has a context in this process, or gets one.
  PageLock(std::byte* memory, size_t bytes, int device);
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  std::byte* const memory_;
  const int device_;
};

/// Page-locked host memory.
class LockedBlock {
 public:
  LockedBlock(size_t bytes, int device)
      : block_(bytes), bytes_(bytes > 0 ? bytes : 1), lock_(block_.data(), bytes_, device) {}

  std::byte* data() const { return block_.data(); }
  size_t size() const { return bytes_; }
  size_t capacity() const { return bytes_; }

  // For Pool. To unlock memory waits for the GPU, so that blocks go only where others are made.
  static constexpr Trims kTrims = Trims::kBeforeMaking;
  /// An eighth larger at most, as new blocks are: the rows that a batch reads become fewer while a
  /// cache fills, and page-locked memory is counted.
  bool suits(size_t bytes) const {
    return capacity() >= bytes && capacity() - capacity() / 9 <= bytes + kSmall;
  }
  /// Takes the blocks that returned first out of `idle`.
  static Pool<LockedBlock>::Blocks trim(Pool<LockedBlock>::Blocks& idle, size_t max_bytes) {
    return Pool<LockedBlock>::take_oldest(idle, max_bytes);
  }

 private:
  static constexpr size_t kSmall = size_t{64} << 10;

  HostBlock block_;
  size_t bytes_;
  PageLock lock_;  // ends before the memory does
};

/// Rows on their way to the GPU. Nothing waits for copies that are under way when a buffer comes
/// back, as torch's allocator does: whoever copies waits.
using LockedBuffer = PooledBuffer<LockedBlock>;
using LockedPool = Pool<LockedBlock>;

}  // namespace lsm
