// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/locked_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "kernels/core/check.h"
#include "kernels/io/nvme/transport/file_mapping.h"

namespace lsm::nvme {
namespace {

// An entry of pagemap (Linux, admin-guide/mm/pagemap): the frame number, which is zero for
// processes that may not see it, and whether the page is in memory.
constexpr uint64_t kFrameMask = (uint64_t{1} << 55) - 1;
constexpr uint64_t kPresent = uint64_t{1} << 63;

constexpr int kAccess = PROT_READ | PROT_WRITE;
// Shared, so that no write after a fork gives this process a copy that the drive does not know.
constexpr int kFlags = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE;
constexpr int kHugePages = MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;  // of 2^21 bytes
constexpr size_t kAlignment = 2 << 20;

/// `bytes` of ordinary pages at a multiple of kAlignment.
void* map_aligned(size_t bytes) {
  void* reserved = mmap(nullptr, bytes + kAlignment, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved != MAP_FAILED) {
    auto* first = static_cast<std::byte*>(reserved);
    const size_t before = -reinterpret_cast<uintptr_t>(first) % kAlignment;
    void* data = mmap(first + before, bytes, kAccess, kFlags | MAP_FIXED, -1, 0);
    if (before > 0) munmap(first, before);
    munmap(first + before + bytes, kAlignment - before);
    if (data != MAP_FAILED) return data;
  }
  throw std::runtime_error(concat("no memory for ", bytes, " bytes: ", std::strerror(errno)));
}

/// Kernel settings that move locked pages: compaction, and balancing between NUMA nodes.
constexpr const char* kMovers[] = {"/sys/vm/compact_unevictable_allowed",
                                   "/sys/kernel/numa_balancing"};

void check_nothing_moves(const std::string& procfs) {
  for (const char* mover : kMovers) {
    std::ifstream file(procfs + mover);
    int value = 0;
    if (file >> value && value != 0) {
      throw std::runtime_error(
          concat("no free huge pages for memory that a drive may write to, and the kernel would "
                 "move other pages meanwhile; as root: echo 64 > /proc/sys/vm/nr_hugepages (or "
                 "echo 0 > ",
                 procfs, mover, ")"));
    }
  }
}

void fill_in_physical_pages(DmaMemory& memory, const std::string& procfs) {
  const FileHandle pagemap(procfs + "/self/pagemap", O_RDONLY);
  std::vector<uint64_t> entries(memory.bytes / kPageBytes);
  const auto first = reinterpret_cast<uintptr_t>(memory.data) / kPageBytes;
  pagemap.read(entries.data(), entries.size() * sizeof(uint64_t), first * sizeof(uint64_t));
  memory.pages.reserve(entries.size());
  for (const uint64_t entry : entries) {
    if ((entry & kPresent) == 0 || (entry & kFrameMask) == 0) {
      throw std::runtime_error(concat(pagemap.path(),
                                      ": the kernel does not show physical addresses to this "
                                      "process; run as root (CAP_SYS_ADMIN)"));
    }
    memory.pages.push_back((entry & kFrameMask) * kPageBytes);
  }
}

}  // namespace

HostPages map_host_pages(size_t bytes) {
  check_argument(sysconf(_SC_PAGESIZE) == kPageBytes, "NVMe over PCI: expected memory pages of ",
                 kPageBytes, " bytes, got ", sysconf(_SC_PAGESIZE));
  HostPages pages;
  void* data = mmap(nullptr, bytes, kAccess, kFlags | kHugePages, -1, 0);
  pages.huge = data != MAP_FAILED;
  if (!pages.huge) data = map_aligned(bytes);
  pages.memory.data = static_cast<std::byte*>(data);
  pages.memory.bytes = bytes;
  pages.memory.owner =
      std::shared_ptr<void>(data, [bytes](void* pointer) { munmap(pointer, bytes); });
  madvise(data, bytes, MADV_DONTFORK);
  return pages;
}

DmaMemory allocate_locked_memory(size_t bytes, const std::string& procfs) {
  HostPages pages = map_host_pages(bytes);
  if (!pages.huge) {
    check_nothing_moves(procfs);
    if (mlock(pages.memory.data, bytes) != 0) {
      throw std::runtime_error(concat("cannot lock ", bytes, " bytes of memory: ",
                                      std::strerror(errno), "; raise `ulimit -l` or run as root"));
    }
  }
  fill_in_physical_pages(pages.memory, procfs);
  return std::move(pages.memory);
}

}  // namespace lsm::nvme
