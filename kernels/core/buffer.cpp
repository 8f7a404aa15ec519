// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace lsm {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

HostBlock::HostBlock(size_t bytes) {
  capacity_ = round_up(std::max<size_t>(bytes, 1), bytes >= kHugePageBytes ? kHugePageBytes : 4096);
  void* memory =
      mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(memory);
  // Only advice: without huge pages the block works, with more page faults.
  if (capacity_ >= kHugePageBytes) madvise(data_, capacity_, MADV_HUGEPAGE);
}

HostBlock::~HostBlock() {
  munmap(data_, capacity_);
}

void HostBlock::populate([[maybe_unused]] size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  // Only advice, too: before Linux 5.14 pages come when they are written.
  madvise(data_, std::min(capacity_, round_up(bytes, 4096)), MADV_POPULATE_WRITE);
#endif
}

Buffer::Buffer(std::shared_ptr<BufferPool> pool, std::unique_ptr<HostBlock> block, size_t bytes)
    : pool_(std::move(pool)), block_(std::move(block)), bytes_(bytes) {}

Buffer::~Buffer() {
  pool_->give_back(std::move(block_));
}

std::shared_ptr<Buffer> BufferPool::take(size_t bytes) {
  std::unique_ptr<HostBlock> block;
  {
    std::lock_guard lock(mutex_);
    // Best fit, but no more than twice what is asked for: a small batch must not pin a large block.
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      const size_t capacity = (*it)->capacity();
      if (capacity < bytes || capacity / 2 > std::max(bytes, kHugePageBytes)) continue;
      if (best == idle_.end() || capacity < (*best)->capacity()) best = it;
    }
    if (best != idle_.end()) {
      block = std::move(*best);
      idle_bytes_ -= block->capacity();
      idle_.erase(best);
    }
  }
  // An eighth of headroom lets the next, slightly larger batch fit the same block.
  if (!block) {
    block = std::make_unique<HostBlock>(bytes + bytes / 8);
    // Here, and not in the thread that keeps the device busy: its page faults would halve the reads
    // per second of the first batches.
    block->populate(bytes);
  }
  return std::make_shared<Buffer>(shared_from_this(), std::move(block), bytes);
}

size_t BufferPool::idle_bytes() const {
  std::lock_guard lock(mutex_);
  return idle_bytes_;
}

void BufferPool::give_back(std::unique_ptr<HostBlock> block) {
  std::vector<std::unique_ptr<HostBlock>> dropped;  // unmapped after the lock is released
  std::lock_guard lock(mutex_);
  idle_bytes_ += block->capacity();
  idle_.push_back(std::move(block));
  while (idle_bytes_ > max_idle_bytes_) {
    idle_bytes_ -= idle_.front()->capacity();
    dropped.push_back(std::move(idle_.front()));
    idle_.erase(idle_.begin());
  }
}

}  // namespace lsm
