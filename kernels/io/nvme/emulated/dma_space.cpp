// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/emulated/dma_space.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/core/check.h"

namespace lsm::nvme {

DmaSpace::DmaSpace() : table_(kMaxPages * sizeof(Entry)) {}

DmaMemory DmaSpace::allocate(size_t bytes, DmaShape shape) {
  // In this order, so that the addresses are removed before their memory.
  struct Owned {
    std::shared_ptr<HostBlock> block;
    std::shared_ptr<void> mapping;
  };
  const size_t whole_pages = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  auto block = std::make_shared<HostBlock>(whole_pages);
  DmaMemory memory = map(block->data(), whole_pages, shape);
  memory.owner = std::make_shared<Owned>(Owned{std::move(block), std::move(memory.owner)});
  return memory;
}

DmaMemory DmaSpace::map(std::byte* data, size_t bytes, DmaShape shape) {
  const uint64_t num_pages = bytes / kPageBytes;
  const uint64_t first = reserve(num_pages);
  DmaMemory memory{data, bytes, {}, {}};
  for (uint64_t i = 0; i < num_pages; ++i) {
    const uint64_t page = first + (shape == DmaShape::kContiguous ? i : num_pages - 1 - i);
    table()[page].store(data + i * kPageBytes, std::memory_order_release);
    memory.pages.push_back((kFirstPage + page) * kPageBytes);
  }
  memory.owner = std::shared_ptr<void>(data, [self = shared_from_this(), first, num_pages](void*) {
    self->release(first, num_pages);
  });
  return memory;
}

std::byte* DmaSpace::translate_run(uint64_t address, size_t bytes) const {
  std::byte* const start = translate(address);
  if (start == nullptr) return nullptr;
  for (uint64_t next = address / kPageBytes * kPageBytes + kPageBytes; next < address + bytes;
       next += kPageBytes) {
    if (translate(next) != start + (next - address)) return nullptr;
  }
  return start;
}

uint64_t DmaSpace::reserve(uint64_t num_pages) {
  std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find(free_, num_pages, &std::pair<uint64_t, uint64_t>::second);
  if (fits != free_.end()) {
    const uint64_t first = fits->first;
    free_.erase(fits);
    return first;
  }
  // A page that is never mapped lies between allocations.
  if (next_page_ + num_pages + 1 > kMaxPages) {
    throw std::runtime_error(concat("emulated controller: its ", kMaxPages * kPageBytes >> 20,
                                    " MiB of addresses are used up; lower storage.queue_depth or "
                                    "storage.max_read_bytes"));
  }
  const uint64_t first = next_page_;
  next_page_ += num_pages + 1;
  return first;
}

void DmaSpace::release(uint64_t first, uint64_t num_pages) {
  for (uint64_t i = 0; i < num_pages; ++i) {
    table()[first + i].store(nullptr, std::memory_order_release);
  }
  std::lock_guard lock(mutex_);
  free_.emplace_back(first, num_pages);
}

}  // namespace lsm::nvme
