// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Bounce memory for transfers between a program's own memory and a GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace lsm {

/// Hands out pieces of blocks until all of them are returned at once. Block: constructed from a
/// number of bytes, with data() and size(). Allocating one is slow, and freeing one waits for the
/// GPU. So a new block is as large as all before, until the pieces between two returns fit, up to a
/// limit; and none is freed before the end.
template <class Block>
class TransferMemory {
 public:
  /// Most bytes for one take(), so that a rare large transfer does not size the memory.
  static constexpr size_t kMaxTaken = size_t{32} << 20;

  /// True if the pieces should be returned before another `bytes` are taken. Then there is room:
  /// the last block is at least half of all.
  bool is_crowded(size_t bytes) const {
    return total_ >= 2 * kMaxTaken &&
           std::none_of(blocks_.begin(), blocks_.end(),
                        [&](const Part& part) { return part.has_room(bytes); });
  }

  /// `bytes` bytes, 256-byte aligned if blocks are.
  std::byte* take(size_t bytes) {
    auto part = std::find_if(blocks_.begin(), blocks_.end(),
                             [&](const Part& each) { return each.has_room(bytes); });
    if (part == blocks_.end()) {
      const size_t size = std::max({kFirstBlock, total_, aligned(bytes)});
      part = blocks_.insert(part, {std::make_unique<Block>(size)});
      total_ += size;
    }
    part->taken += aligned(bytes);
    return part->block->data() + part->taken - aligned(bytes);
  }

  /// Returns all pieces. Precondition: nothing uses them any more.
  void take_back() {
    for (Part& part : blocks_) part.taken = 0;
  }

 private:
  static constexpr size_t kFirstBlock = size_t{8} << 20;

  static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

  struct Part {
    std::unique_ptr<Block> block;
    size_t taken = 0;

    bool has_room(size_t bytes) const { return taken + aligned(bytes) <= block->size(); }
  };

  std::vector<Part> blocks_;
  size_t total_ = 0;  // bytes of all
};

}  // namespace lsm
