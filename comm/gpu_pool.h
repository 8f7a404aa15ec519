// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Where a rank's batches are, in memory that its peers have mapped: allocated once, since mapping
// is slow and what peers have mapped must stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/gpu_memory.h"

namespace lsm::comm {

class GpuPool;

/// `size()` bytes that return to their pool when the last reference goes away.
class GpuBuffer {
 public:
  /// Where it is: `number` tells blocks of this process apart, whichever pool made them.
  struct Place {
    int64_t number;
    size_t offset;
  };

  GpuBuffer(std::shared_ptr<GpuPool> pool, const Place& place, const ExportedBlock& block,
            size_t bytes);
  ~GpuBuffer();
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  std::byte* data() const { return block_.data() + place_.offset; }
  size_t size() const { return bytes_; }
  int device() const;
  const Place& place() const { return place_; }
  const ExportedBlock& block() const { return block_; }

 private:
  std::shared_ptr<GpuPool> pool_;
  const Place place_;
  const ExportedBlock& block_;  // the pool's
  const size_t bytes_;
};

/// Hands out parts of a block of `block_bytes`, and makes further blocks only when batches that are
/// held leave no room; it never gives one up. What returns is handed out again when the GPU is done
/// with it, by the default stream (GpuMemory::fence). The caller sees to it that no peer still
/// writes there. Thread-safe.
class GpuPool : public std::enable_shared_from_this<GpuPool> {
 public:
  GpuPool(std::unique_ptr<GpuMemory> memory, size_t block_bytes, double timeout_secs);

  /// Waits for the GPU where it has not finished with what returned; throws TimeoutError.
  std::shared_ptr<GpuBuffer> take(size_t bytes);

  int device() const { return memory_->device(); }
  /// Memory of all blocks.
  size_t size() const;

 private:
  friend class GpuBuffer;

  struct Block {
    int64_t number;
    std::unique_ptr<ExportedBlock> memory;
    std::map<size_t, size_t> idle;  // bytes by offset; neighbours are one
  };
  struct Returned {
    GpuBuffer::Place place;
    size_t bytes;
    std::unique_ptr<Fence> fence;
  };

  void add_block(size_t bytes);
  std::shared_ptr<GpuBuffer> take_idle(size_t bytes);
  void collect_returned();
  void make_idle(const GpuBuffer::Place& place, size_t bytes);
  void give_back(const GpuBuffer::Place& place, size_t bytes) noexcept;

  const std::unique_ptr<GpuMemory> memory_;
  const size_t block_bytes_;
  const double timeout_secs_;
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  std::deque<Returned> returned_;
};

}  // namespace lsm::comm
