// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Collapsing arrays into huge pages keeps their bytes and reaches the kernel.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels/core/huge_pages.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

constexpr size_t kPages = 4;

/// Memory of small pages only: `kPages` huge pages, aligned, before them and after them one more.
class SmallPages {
 public:
  SmallPages() {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    // Faults take no huge page then, whatever transparent_hugepage/enabled says.
    LSM_EXPECT(madvise(memory_, kBytes, MADV_NOHUGEPAGE) == 0, std::strerror(errno));
    const auto begin = reinterpret_cast<uintptr_t>(memory_);
    first_ = memory_bytes() + (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
    for (size_t i = 0; i < kBytes; ++i) memory_bytes()[i] = byte_of(1, static_cast<int64_t>(i));
    // Clears VM_NOHUGEPAGE, which MADV_COLLAPSE respects, and collapses nothing by itself.
    LSM_EXPECT(madvise(memory_, kBytes, MADV_HUGEPAGE) == 0, std::strerror(errno));
  }
  ~SmallPages() { munmap(memory_, kBytes); }
  SmallPages(const SmallPages&) = delete;
  SmallPages& operator=(const SmallPages&) = delete;

  /// At the start of a huge page; `kPages` of them follow.
  std::byte* first() const { return first_; }
  bool is_unchanged() const { return is_row({memory_bytes(), kBytes}, 1); }

  /// AnonHugePages of the mapping, in bytes.
  size_t huge_bytes() const {
    std::ifstream smaps("/proc/self/smaps");
    size_t found = 0;
    bool is_here = false;
    for (std::string line; std::getline(smaps, line);) {
      uintptr_t begin = 0, end = 0;
      char dash = 0;
      std::istringstream range(line);
      if (range >> std::hex >> begin >> dash >> end && dash == '-') {
        const auto own = reinterpret_cast<uintptr_t>(memory_);
        is_here = begin < own + kBytes && own < end;
      } else if (is_here && line.starts_with("AnonHugePages:")) {
        found += std::stoul(line.substr(line.find(':') + 1)) << 10;
      }
    }
    return found;
  }

 private:
  static constexpr size_t kBytes = (kPages + 2) * kHugePageBytes;

  std::byte* memory_bytes() const { return static_cast<std::byte*>(memory_); }

  void* memory_;
  std::byte* first_;
};

/// True if this kernel collapses a page when it is asked to, without the function under test.
bool kernel_collapses() {
  const SmallPages pages;
  return madvise(pages.first(), kHugePageBytes, 25 /* MADV_COLLAPSE */) == 0;
}

TEST_CASE("core: arrays collapse into the huge pages that they span") {
  const bool collapses = kernel_collapses();
  if (!collapses) MESSAGE("this kernel collapses no pages: ", std::strerror(errno));
  struct Case {
    size_t offset, bytes, num_pages;
  };
  for (const auto& [offset, bytes, num_pages] : {
           Case{0, kPages * kHugePageBytes, kPages},
           Case{1, kPages * kHugePageBytes, kPages - 1},      // starts behind a boundary
           Case{0, kPages * kHugePageBytes - 1, kPages - 1},  // ends before a boundary
           Case{4096, 2 * kHugePageBytes - 4097, 0},          // spans no whole page
           Case{0, 0, 0},
       }) {
    const size_t expected = collapses ? num_pages * kHugePageBytes : 0;
    size_t found = 0;
    // The kernel's own thread may collapse pages next to the array at any time.
    for (int attempt = 0; attempt < 10; ++attempt) {
      const SmallPages pages;
      const size_t before = pages.huge_bytes();
      collapse_into_huge_pages({pages.first() + offset, bytes});
      LSM_EXPECT(pages.is_unchanged(), "offset ", offset, ", ", bytes, " bytes");
      found = pages.huge_bytes();
      LSM_EXPECT(found >= expected, found, " of ", expected);
      if (before == 0 && found == expected) break;
    }
    LSM_EXPECT(found == expected, found, " of ", expected);
  }
}

}  // namespace
}  // namespace lsm::testing
