// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "tests/emulated/runtime/hooks.h"
#include "tests/emulated/runtime/waiting.h"

namespace emulated {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPlaceBytes = size_t{32} << 30;
constexpr size_t kPlacePages = kPlaceBytes / kPage;
// Allocations are as aligned as CUDA's, and not more.
constexpr size_t kAlignment = 256;

struct Allocation {
  uintptr_t begin = 0, end = 0;
  std::atomic<bool> is_live{false};
  std::atomic<uint32_t> peers{0};  // devices that mapped it, a bit each
};

/// Registered memory; end 0: nothing is registered here.
struct Range {
  std::atomic<uintptr_t> end{0};
  uintptr_t begin = 0;
  int device = 0;
};
constexpr int kMaxRanges = 256;

/// Addresses of all places in a row, and the allocation of every page. Never destroyed: threads of
/// the runtime use it to the end. Its contents come from mmap(), which the sanitizer does not
/// watch.
struct Memory {
  Lock lock;
  uintptr_t begin;
  std::atomic<uint32_t>* pages;  // the allocation's number; 0: none
  Allocation* allocations;       // by number
  uint32_t num_allocations = 0;
  size_t used[kNumDevices + 1] = {};  // bytes of each place that were handed out
  Range ranges[kMaxRanges];

  Memory() {
    begin = reinterpret_cast<uintptr_t>(reserve((kNumDevices + 1) * kPlaceBytes, PROT_NONE));
    const int both = PROT_READ | PROT_WRITE;
    const size_t num_pages = (kNumDevices + 1) * kPlacePages;
    pages = static_cast<std::atomic<uint32_t>*>(reserve(num_pages * sizeof(uint32_t), both));
    allocations = static_cast<Allocation*>(reserve(num_pages * sizeof(Allocation), both));
  }

  static void* reserve(size_t bytes, int protection) {
    void* memory =
        mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) report("no address space for the emulated GPU's memory");
    return memory;
  }

  bool has(uintptr_t address) const { return address - begin < (kNumDevices + 1) * kPlaceBytes; }
  int place(uintptr_t address) const { return static_cast<int>((address - begin) / kPlaceBytes); }
  Allocation* find(uintptr_t address) const {
    const uint32_t number = pages[(address - begin) / kPage].load(std::memory_order_acquire);
    return number == 0 ? nullptr : &allocations[number];
  }
  Allocation* find_start(const void* memory) const {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    Allocation* const found = has(address) ? find(address) : nullptr;
    return found != nullptr && found->begin == address && found->is_live ? found : nullptr;
  }
  bool is_registered(uintptr_t address, size_t bytes) const {
    for (const Range& range : ranges) {
      const uintptr_t end = range.end.load(std::memory_order_acquire);
      if (address + bytes <= end && address >= range.begin) return true;
    }
    return false;
  }
};

Memory& memory() {
  static Memory* const all = new Memory;
  return *all;
}

}  // namespace

void report(const char* format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  std::fprintf(stderr, "EMULATED GPU: %s\n", message);
  std::fflush(stdout);
  _exit(66);
}

void* allocate(int place, size_t bytes) {
  Memory& all = memory();
  const size_t whole = (kAlignment + bytes + kPage - 1) / kPage * kPage;
  uintptr_t page;
  uintptr_t begin;
  {
    const std::lock_guard lock(all.lock);
    // A page between neighbours belongs to nobody.
    if (all.used[place] + whole + kPage > kPlaceBytes) return nullptr;
    page = all.begin + static_cast<size_t>(place) * kPlaceBytes + all.used[place];
    all.used[place] += whole + kPage;
    begin = page + kAlignment;
    const uint32_t number = ++all.num_allocations;
    Allocation& made = all.allocations[number];
    made.begin = begin;
    made.end = begin + bytes;
    made.is_live = true;
    for (uintptr_t at = page; at < page + whole; at += kPage) {
      all.pages[(at - all.begin) / kPage].store(number, std::memory_order_release);
    }
  }
  mprotect(reinterpret_cast<void*>(page), whole, PROT_READ | PROT_WRITE);
  const OnDevice scope;
  if (bytes <= kLarge) std::memset(reinterpret_cast<void*>(begin), kPoison, bytes);
  return reinterpret_cast<void*>(begin);
}

void fill(void* start, int byte, size_t bytes) {
  if (byte != 0 || bytes <= kLarge || !is_allocated(start)) {
    std::memset(start, byte, bytes);
    return;
  }
  const auto begin = reinterpret_cast<uintptr_t>(start), end = begin + bytes;
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage, last = end / kPage * kPage;
  std::memset(start, 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
  madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

int place_of(const void* start) {
  const Allocation* const found = memory().find_start(start);
  return found == nullptr ? -1 : memory().place(found->begin);
}

size_t size_of(const void* start) {
  const Allocation* const found = memory().find_start(start);
  return found == nullptr ? 0 : found->end - found->begin;
}

void release(void* start) {
  Memory& all = memory();
  Allocation* const found = all.find_start(start);
  if (found == nullptr) report("memory is freed that is not there: %p", start);
  found->is_live = false;
  const uintptr_t page = found->begin - kAlignment;
  const size_t whole = (found->end - page + kPage - 1) / kPage * kPage;
  void* const pages = reinterpret_cast<void*>(page);
  madvise(pages, whole, MADV_DONTNEED);
  hook_release_memory(pages, whole);
  mprotect(pages, whole, PROT_NONE);
}

bool register_range(void* start, size_t bytes, int device) {
  Memory& all = memory();
  const std::lock_guard lock(all.lock);
  const auto begin = reinterpret_cast<uintptr_t>(start);
  Range* free = nullptr;
  for (Range& range : all.ranges) {
    if (range.end == 0) {
      free = &range;
    } else if (begin < range.end && range.begin < begin + bytes) {
      return false;
    }
  }
  if (free == nullptr) report("more than %d registered ranges", kMaxRanges);
  free->begin = begin;
  free->device = device;
  free->end.store(begin + bytes, std::memory_order_release);
  return true;
}

int unregister_range(void* start) {
  Memory& all = memory();
  const std::lock_guard lock(all.lock);
  for (Range& range : all.ranges) {
    if (range.end == 0 || range.begin != reinterpret_cast<uintptr_t>(start)) continue;
    range.end = 0;
    return range.device;
  }
  return -1;
}

void set_peer_access(void* start, int device, bool has_access) {
  Allocation* const found = memory().find_start(start);
  if (found == nullptr) report("a mapping of memory that is not there: %p", start);
  if (has_access) {
    found->peers |= 1u << device;
  } else if ((found->peers.fetch_and(~(1u << device)) >> device & 1) == 0) {
    report("device %d has no mapping of %p", device, start);
  }
}

uintptr_t memory_begin() {
  return memory().begin;
}

size_t memory_bytes() {
  return (kNumDevices + 1) * kPlaceBytes;
}

bool is_allocated(const void* start) {
  return memory().has(reinterpret_cast<uintptr_t>(start));
}

bool is_on_gpu(const void* start) {
  const auto address = reinterpret_cast<uintptr_t>(start);
  return memory().has(address) && memory().place(address) != kHost;
}

bool is_pageable_reachable() {
  static const bool is_reachable = std::getenv("LSM_EMULATED_PAGEABLE") != nullptr;
  return is_reachable;
}

bool is_reachable(const void* start, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(start);
  return memory().has(address) || memory().is_registered(address, bytes);
}

bool check_kernel(const OwnMemory* own, int device, uintptr_t address, size_t bytes,
                  const char* what) {
  if (own != nullptr) {
    if (address - own->stack < own->stack_bytes) return false;
    if (address - own->parameters < own->parameter_bytes) return false;
  }
  const char* const who = own == nullptr ? "a copy" : own->kernel;
  const Memory& all = memory();
  if (!all.has(address)) {
    if (is_pageable_reachable() || all.is_registered(address, bytes)) return true;
    report("%s on device %d: %s of %zu bytes at %#zx, host memory that is not page-locked", who,
           device, what, bytes, address);
  }
  const Allocation* const found = all.find(address);
  const int place = all.place(address);
  const char* const name = place == kHost ? "page-locked" : "device";
  if (found != nullptr && !found->is_live.load(std::memory_order_acquire)) {
    report("%s on device %d: %s of %zu bytes at %#zx, freed %s memory", who, device, what, bytes,
           address, name);
  }
  if (found == nullptr || address < found->begin || address + bytes > found->end) {
    const size_t begin = found == nullptr ? 0 : found->begin;
    const size_t end = found == nullptr ? 0 : found->end;
    report(
        "%s on device %d: %s of %zu bytes at %#zx, outside of any %s memory; the nearest is "
        "[%#zx, %#zx)",
        who, device, what, bytes, address, name, begin, end);
  }
  if (place != device && place != kHost && own != nullptr && (found->peers >> device & 1) == 0) {
    report("%s on device %d: %s of %zu bytes at %#zx, memory of device %d", who, device, what,
           bytes, address, place);
  }
  return place == kHost;
}

KernelCounts& counts_of(const char* kernel) {
  static KernelCounts all[64];
  for (KernelCounts& counts : all) {
    const char* name = nullptr;
    if (counts.kernel.compare_exchange_strong(name, kernel) || std::strcmp(name, kernel) == 0) {
      return counts;
    }
  }
  report("more kernels than their counts have room for");
}

CallCounts& call_counts() {
  static CallCounts counts;
  return counts;
}

WarpTraffic& warp_traffic() {
  static WarpTraffic traffic;
  return traffic;
}

static std::atomic<bool> is_traffic_counted{false};

void count_traffic(bool is_on) {
  is_traffic_counted = is_on;
}

bool counts_traffic() {
  return is_traffic_counted;
}

static thread_local int64_t waits_of_thread = 0;

void count_wait() {
  ++call_counts().waits;
  ++waits_of_thread;
}

void check_host(uintptr_t address, size_t bytes, const char* what) {
  const Memory& all = memory();
  if (!all.has(address)) return;
  const int place = all.place(address);
  if (place != kHost) {
    report("the host touches device memory: %s of %zu bytes at %#zx, memory of device %d", what,
           bytes, address, place);
  }
  const Allocation* const found = all.find(address);
  if (found == nullptr || address < found->begin || address + bytes > found->end) {
    report("the host: %s of %zu bytes at %#zx, outside page-locked memory", what, bytes, address);
  }
  if (!found->is_live.load(std::memory_order_acquire)) {
    report("the host: %s of %zu bytes at %#zx, freed page-locked memory", what, bytes, address);
  }
}

}  // namespace emulated

/// For bench/gpu_counts.py, in the order of CallCounts; then the waits of the calling thread.
extern "C" [[gnu::visibility("default")]] void emulated_call_counts(int64_t* counts) {
  const emulated::CallCounts& all = emulated::call_counts();
  int next = 0;
  for (const std::atomic<int64_t>* count :
       {&all.launches, &all.waits, &all.to_gpu_bytes, &all.from_gpu_bytes, &all.far_bytes,
        &all.allocations, &all.host_accesses}) {
    counts[next++] = *count;
  }
  counts[next] = emulated::waits_of_thread;
}
