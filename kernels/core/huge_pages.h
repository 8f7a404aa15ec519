// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Huge pages for arrays that are read at random. With small pages most such reads walk the page
// table first, which costs as much as the read, or several times as much in a virtual machine.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>
#include <vector>

namespace lsm {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Moves the whole huge pages that `array` spans into huge pages, as far as the system has them.
/// Contents and addresses stay. Advice only: does nothing before Linux 6.1.
void collapse_into_huge_pages(std::span<const std::byte> array);

/// Allocates huge pages for arrays that are large enough.
template <class T>
struct HugePageAllocator {
  using value_type = T;

  HugePageAllocator() = default;
  template <class U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t count) {
    const size_t bytes = rounded(count);
    if (bytes < kHugePageBytes) return static_cast<T*>(::operator new(bytes));
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(memory);
  }
  void deallocate(T* array, size_t count) {
    const size_t bytes = rounded(count);
    bytes < kHugePageBytes ? ::operator delete(array) : void(munmap(array, bytes));
  }

  friend bool operator==(const HugePageAllocator&, const HugePageAllocator&) { return true; }

 private:
  static size_t rounded(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes < kHugePageBytes) return bytes;
    return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  }
};

template <class T>
using HugePageVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace lsm
