// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory that other processes of this machine can write: a rank's peers put rows straight into its
// batch. Nothing has a name in the file system, so nothing stays behind when a process is killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/core/pool.h"

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
  /// Throws SystemError if there is too little memory.
  explicit SharedBlock(size_t bytes);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::byte* data() const { return mapping_->data(); }
  size_t capacity() const { return mapping_->size(); }
  int descriptor() const { return descriptor_; }
  int64_t number() const { return number_; }

  // For Pool.
  static constexpr Trims kTrims = Trims::kBeforeMaking;
  static std::unique_ptr<SharedBlock> make(size_t bytes, size_t headroom) {
    return std::make_unique<SharedBlock>(bytes + headroom);
  }
  bool suits(size_t bytes) const { return capacity() >= bytes; }
  /// Takes the smallest blocks out of `idle`, and discards them.
  static Pool<SharedBlock>::Blocks trim(Pool<SharedBlock>::Blocks& idle, size_t max_bytes);

  /// Frees the memory although peers may have it mapped. Precondition: no peer touches it any more.
  void discard();

 private:
  int descriptor_;
  int64_t number_;  // unique in this process
  std::unique_ptr<Mapping> mapping_;
};

/// Precondition of taking a block: no peer still writes to a returned one. Only then are blocks
/// freed.
using SharedBuffer = PooledBuffer<SharedBlock>;
using SharedPool = Pool<SharedBlock>;

/// A block of another process of this machine.
class PeerBlock {
 public:
  /// Maps descriptor `descriptor` of process `process_id`. Throws SystemError if it cannot be
  /// opened, ArgumentError if it is smaller than `bytes`.
  PeerBlock(int64_t process_id, int descriptor, size_t bytes);

  std::byte* data() const { return mapping_->data(); }
  size_t size() const { return mapping_->size(); }

 private:
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace lsm::comm
