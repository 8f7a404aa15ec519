// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/warp_hooks.h"

#include <sys/mman.h>

#include "tests/emulated/runtime/hooks.h"
#include "tests/emulated/runtime/memory.h"

namespace emulated {
namespace {

/// The accesses to a byte of the launch that came there last.
struct Cell {
  uint32_t launch;
  uint32_t warp : 28;    // kMany: several, none of which wrote but by atomic operations
  uint32_t touches : 4;  // Touch, together
};
static_assert(sizeof(Cell) == 8);
constexpr uint32_t kMany = (1u << 28) - 1;

/// A cell for each byte; memory of those that are used.
std::atomic<Cell>* cells() {
  static std::atomic<Cell>* const all = [] {
    void* const memory = mmap(nullptr, memory_bytes() * sizeof(Cell), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) report("no address space for what warps touch");
    return static_cast<std::atomic<Cell>*>(memory);
  }();
  return all;
}

bool is_race(const Cell& seen, const Cell& made) {
  const auto write = static_cast<uint32_t>(Touch::kWrite);
  return seen.launch == made.launch && seen.warp != made.warp &&
         ((seen.touches | made.touches) & write) != 0;
}

Cell merge(const Cell& seen, const Cell& made) {
  if (seen.launch != made.launch) return made;
  const uint32_t touches = seen.touches | made.touches;
  return {made.launch, seen.warp == made.warp ? made.warp : kMany, touches};
}

}  // namespace

void check_warps(const OwnMemory& own, uintptr_t address, size_t bytes, Touch touch) {
  if (own.launch->is_ordered || address - memory_begin() >= memory_bytes()) {
    return;
  }
  const Cell made{own.launch->number, own.warp, static_cast<uint32_t>(touch)};
  std::atomic<Cell>* const first = cells() + (address - memory_begin());
  for (size_t i = 0; i < bytes; ++i) {
    Cell seen = first[i].load(std::memory_order_relaxed);
    do {
      if (!is_race(seen, made) || own.launch->is_ordered) continue;
      report("%s on device %d: a race of warps %u and %u at %#zx", own.kernel, own.device,
             seen.warp, own.warp, address + i);
    } while (!first[i].compare_exchange_weak(seen, merge(seen, made)));
  }
}

void forget_touches(void* memory, size_t bytes) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
  madvise(static_cast<void*>(cells() + (address - memory_begin())), bytes * sizeof(Cell),
          MADV_DONTNEED);
}

}  // namespace emulated
