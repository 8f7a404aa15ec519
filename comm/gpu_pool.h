// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The memory of a rank's batches, which its peers have mapped. It is allocated once: mapping is
// slow, and mapped memory must stay.
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

/// `size()` bytes that return to their pool with the last reference.
class GpuBuffer {
 public:
  /// The place of the buffer. `number` identifies a block in this process, over all pools.
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

/// Hands out parts of a block of `block_bytes`. Makes further blocks only when batches that are
/// still held leave no room, and never frees one. A returned part is reused once the default stream
/// has passed its last use (GpuMemory::fence). Precondition of take(): no peer still writes to a
/// returned part. Thread-safe.
class GpuPool : public std::enable_shared_from_this<GpuPool> {
 public:
  GpuPool(std::unique_ptr<GpuMemory> memory, size_t block_bytes, double timeout_secs);

  /// Throws TimeoutError. Blocks while the GPU still uses the returned parts that it needs.
  std::shared_ptr<GpuBuffer> take(size_t bytes);

  int device() const { return memory_->device(); }
  /// Memory of all blocks.
  size_t size() const;

 private:
  friend class GpuBuffer;

  struct Block {
    int64_t number;
    std::unique_ptr<ExportedBlock> memory;
    std::map<size_t, size_t> idle;  // bytes by offset; adjacent parts are merged
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
