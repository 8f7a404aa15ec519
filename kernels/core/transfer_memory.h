// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory that bytes pass through on their way between a program's own memory and a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lsm {

/// Hands out pieces of blocks until all of them come back at once. Block: made from a number of
/// bytes, with data() and size(); making and freeing one is slow. So the memory grows until what is
/// taken between two times that it comes back fits into one block, up to a limit, and then stays.
template <class Block>
class TransferMemory {
 public:
  /// Most bytes for one take(), so that the memory is not sized for what happens once.
  static constexpr size_t kMaxTaken = size_t{32} << 20;

  /// Whether what was taken should come back before so many more are.
  bool is_crowded(size_t bytes) const {
    return block_ && !has_room(bytes) && block_->size() >= kLargeBlock;
  }

  /// `bytes` bytes, 256-byte aligned if blocks are.
  std::byte* take(size_t bytes) {
    if (!has_room(bytes)) {
      const size_t grown = block_ ? 2 * block_->size() : kFirstBlock;
      const size_t size = std::max(grown, 2 * aligned(bytes));
      if (block_) full_.push_back(std::move(block_));
      block_ = std::make_unique<Block>(size);
      taken_ = 0;
    }
    taken_ += aligned(bytes);
    return block_->data() + taken_ - aligned(bytes);
  }

  /// Nothing uses what was taken any more.
  void take_back() {
    taken_ = 0;
    full_.clear();
  }

 private:
  static constexpr size_t kFirstBlock = size_t{8} << 20;
  static constexpr size_t kLargeBlock = 2 * kMaxTaken;

  static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }
  bool has_room(size_t bytes) const { return block_ && taken_ + aligned(bytes) <= block_->size(); }

  std::unique_ptr<Block> block_;
  size_t taken_ = 0;
  std::vector<std::unique_ptr<Block>> full_;
};

}  // namespace lsm
