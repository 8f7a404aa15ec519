// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "kernels/core/huge_pages.h"

namespace lsm {
namespace {

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

std::unique_ptr<HostBlock> HostBlock::make(size_t bytes, size_t headroom) {
  auto block = std::make_unique<HostBlock>(bytes + headroom);
  // Here, and not in the thread that keeps the disk busy: its page faults would halve the reads per
  // second of the first batches.
  block->populate(bytes);
  return block;
}

bool HostBlock::suits(size_t bytes) const {
  return capacity_ >= bytes && capacity_ / 2 <= std::max(bytes, kHugePageBytes);
}

Pool<HostBlock>::Blocks HostBlock::trim(Pool<HostBlock>::Blocks& idle, size_t max_bytes) {
  return Pool<HostBlock>::take_oldest(idle, max_bytes);
}

}  // namespace lsm
