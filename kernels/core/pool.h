// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Blocks of memory that are handed out and come back, of any kind.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lsm {

template <class Block>
class Pool;

/// `size()` bytes of a block that returns to its pool when the last reference goes away.
template <class Block>
class PooledBuffer {
 public:
  PooledBuffer(std::shared_ptr<Pool<Block>> pool, std::unique_ptr<Block> block, size_t bytes)
      : pool_(std::move(pool)), block_(std::move(block)), bytes_(bytes) {}
  ~PooledBuffer() { pool_->give_back(std::move(block_)); }
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;

  const Block& block() const { return *block_; }
  std::byte* data() const { return block_->data(); }
  size_t size() const { return bytes_; }

 private:
  std::shared_ptr<Pool<Block>> pool_;
  std::unique_ptr<Block> block_;
  size_t bytes_;
};

/// When a pool gives up blocks beyond its limit: when one returns, or only before it makes one.
enum class Trims { kOnReturn, kBeforeMaking };

/// Takes the smallest returned block that suits, and makes one where none does: a caller that holds
/// everything gets fresh memory, so that waiting for a buffer cannot deadlock. Keeps up to
/// `max_idle_bytes` of returned blocks. Thread-safe. A Block has data(), capacity() and
///
///   static constexpr Trims kTrims;
///   static std::unique_ptr<Block> make(size_t bytes, size_t headroom);  // unless the pool is told
///   bool suits(size_t bytes) const;  // whether it is large enough, and not too large
///   static Blocks trim(Blocks& idle, size_t max_bytes);  // takes out the blocks to give up
template <class Block>
class Pool : public std::enable_shared_from_this<Pool<Block>> {
 public:
  using Blocks = std::vector<std::unique_ptr<Block>>;

  using Make = std::function<std::unique_ptr<Block>(size_t bytes, size_t headroom)>;

  explicit Pool(size_t max_idle_bytes, Make make = &Block::make)
      : max_idle_bytes_(max_idle_bytes), make_(std::move(make)) {}

  std::shared_ptr<PooledBuffer<Block>> take(size_t bytes) {
    std::unique_ptr<Block> block = take_idle(bytes);
    // An eighth of headroom lets the next, slightly larger batch fit the same block.
    if (!block) block = make_(bytes, bytes / 8);
    return std::make_shared<PooledBuffer<Block>>(this->shared_from_this(), std::move(block), bytes);
  }

  size_t idle_bytes() const {
    std::lock_guard lock(mutex_);
    return num_bytes(idle_);
  }

  static size_t num_bytes(const Blocks& blocks) {
    size_t bytes = 0;
    for (const auto& block : blocks) bytes += block->capacity();
    return bytes;
  }

  /// For Block::trim(): takes the blocks that returned first out of `idle`, until at most
  /// `max_bytes` are left.
  static Blocks take_oldest(Blocks& idle, size_t max_bytes) {
    size_t bytes = num_bytes(idle);
    auto kept = idle.begin();
    for (; bytes > max_bytes; ++kept) bytes -= (*kept)->capacity();
    Blocks dropped(std::make_move_iterator(idle.begin()), std::make_move_iterator(kept));
    idle.erase(idle.begin(), kept);
    return dropped;
  }

 private:
  friend class PooledBuffer<Block>;

  std::unique_ptr<Block> take_idle(size_t bytes) {
    Blocks dropped;  // freed after the lock is released
    std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if (!(*it)->suits(bytes)) continue;
      if (best == idle_.end() || (*it)->capacity() < (*best)->capacity()) best = it;
    }
    if (best == idle_.end()) {
      if (Block::kTrims == Trims::kBeforeMaking) dropped = Block::trim(idle_, max_idle_bytes_);
      return nullptr;
    }
    std::unique_ptr<Block> block = std::move(*best);
    idle_.erase(best);
    return block;
  }

  void give_back(std::unique_ptr<Block> block) {
    // In a forked child a thread of the parent may hold the lock for ever: the block is freed.
    if (getpid() != process_) return;
    Blocks dropped;
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(block));
    if (Block::kTrims == Trims::kOnReturn) dropped = Block::trim(idle_, max_idle_bytes_);
  }

  const size_t max_idle_bytes_;
  const Make make_;
  const pid_t process_ = getpid();
  mutable std::mutex mutex_;
  Blocks idle_;  // in the order in which they returned
};

}  // namespace lsm
