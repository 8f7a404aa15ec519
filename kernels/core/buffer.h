// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Host memory that is handed out and comes back: a batch's rows are tens of megabytes, and fresh
// pages for each batch would cost as much as filling them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

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

  /// Makes the first `bytes` bytes present now, so that whoever writes them later takes no page
  /// faults.
  void populate(size_t bytes);

 private:
  std::byte* data_;
  size_t capacity_;
};

class BufferPool;

/// `bytes` bytes of a block that returns to its pool when the last reference goes away.
class Buffer {
 public:
  Buffer(std::shared_ptr<BufferPool> pool, std::unique_ptr<HostBlock> block, size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return block_->data(); }
  size_t size() const { return bytes_; }

 private:
  std::shared_ptr<BufferPool> pool_;
  std::unique_ptr<HostBlock> block_;
  size_t bytes_;
};

/// Keeps up to `max_idle_bytes` of returned blocks for reuse. Thread-safe. Never refuses: a caller
/// that holds everything gets fresh memory, so that waiting for a buffer cannot deadlock.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  explicit BufferPool(size_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}

  std::shared_ptr<Buffer> take(size_t bytes);
  size_t idle_bytes() const;

 private:
  friend class Buffer;
  void give_back(std::unique_ptr<HostBlock> block);

  const size_t max_idle_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<HostBlock>> idle_;
  size_t idle_bytes_ = 0;
};

}  // namespace lsm
