// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory that other processes of this machine can write: a rank's peers put rows straight into its
// batch. Nothing has a name in the file system, so that nothing stays behind however a process
// ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lsm::comm {

/// A file mapped for reading and writing.
class Mapping {
 public:
  Mapping(int descriptor, size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

/// Memory of this process that its peers can map, by its process id and descriptor.
class SharedBlock {
 public:
  /// Throws SystemError if there is not so much memory.
  explicit SharedBlock(size_t bytes);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::byte* data() const { return mapping_->data(); }
  size_t capacity() const { return mapping_->size(); }
  int descriptor() const { return descriptor_; }
  int64_t number() const { return number_; }

  /// Gives the memory back although peers may have it mapped. None may touch it any more.
  void discard();

 private:
  int descriptor_;
  int64_t number_;  // unique in this process
  std::unique_ptr<Mapping> mapping_;
};

class SharedPool;

/// `size()` bytes of a block that returns to its pool when the last reference goes away.
class SharedBuffer {
 public:
  SharedBuffer(std::shared_ptr<SharedPool> pool, std::unique_ptr<SharedBlock> block, size_t bytes);
  ~SharedBuffer();
  SharedBuffer(const SharedBuffer&) = delete;
  SharedBuffer& operator=(const SharedBuffer&) = delete;

  const SharedBlock& block() const { return *block_; }
  std::byte* data() const { return block_->data(); }
  size_t size() const { return bytes_; }

 private:
  std::shared_ptr<SharedPool> pool_;
  std::unique_ptr<SharedBlock> block_;
  size_t bytes_;
};

/// Keeps returned blocks for reuse; beyond `max_idle_bytes` of them, the smallest are given up when
/// a new one is made, and only then: the caller sees to it that no peer still writes to a returned
/// block when it takes the next. Thread-safe.
class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  explicit SharedPool(size_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}

  std::shared_ptr<SharedBuffer> take(size_t bytes);

 private:
  friend class SharedBuffer;
  void give_back(std::unique_ptr<SharedBlock> block);
  void make_room();

  const size_t max_idle_bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SharedBlock>> idle_;
};

/// A block of another process of this machine.
class PeerBlock {
 public:
  /// Maps the block that process `process_id` has as `descriptor`. Throws SystemError if it cannot
  /// be opened, and ArgumentError if it is smaller than `bytes`.
  PeerBlock(int64_t process_id, int descriptor, size_t bytes);

  std::byte* data() const { return mapping_->data(); }
  size_t size() const { return mapping_->size(); }

 private:
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace lsm::comm
