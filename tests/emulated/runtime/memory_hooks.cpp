// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The callbacks of -fsanitize=thread, in place of the sanitizer's own: the compiler calls one for
// every access to memory of every file of the build, host and kernels alike.
#include "tests/emulated/runtime/hooks.h"
#include "tests/emulated/runtime/warp_hooks.h"

#include <unistd.h>

#include <cstring>
#include <utility>

namespace emulated {
namespace {

inline void count_far(int64_t bytes) {
  call_counts().far_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (!own_memory->holds_sms) return;
  call_counts().far_bytes_holding_sms.fetch_add(bytes, std::memory_order_relaxed);
}

/// By the runtime, whose list may grow meanwhile, and not by the lane. Parts of 16 aligned bytes
/// that follow each other are one instruction: this compiler copies such words in parts.
void count_access(uintptr_t address, size_t bytes) {
  constexpr uintptr_t kWord = 16;
  const OwnMemory* const lane = std::exchange(own_memory, nullptr);
  const OnDevice on_device;
  LaneTraffic& traffic = *lane->traffic;
  traffic.sectors.push_back(address / kSectorBytes);
  traffic.instructions += address != traffic.end || address % kWord == 0 ? 1 : 0;
  traffic.end = address + bytes;
  own_memory = lane;
}

template <size_t kBytes, Touch kTouch>
inline void check(const void* memory, const char* what) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (own_memory == nullptr) {
    if (is_on_device) return;
    check_host(address, kBytes, what);
    call_counts().host_accesses.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (address % kBytes != 0) {
    report("%s on device %d: misaligned %s of %zu bytes at %#zx", own_memory->kernel,
           own_memory->device, what, kBytes, address);
  }
  const bool is_far = check_kernel(own_memory, own_memory->device, address, kBytes, what);
  check_warps(*own_memory, address, kBytes, kTouch);
  if (own_memory->traffic != nullptr && is_allocated(memory)) count_access(address, kBytes);
  if (!is_far) return;
  count_far(kBytes);
  if (kTouch == Touch::kRead) own_memory->counts->far_reads.fetch_add(1, std::memory_order_relaxed);
}

void check_range(const void* memory, size_t bytes, const char* what, Touch touch = Touch::kRead) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if (bytes == 0) return;
  if (own_memory != nullptr) {
    const bool is_far = check_kernel(own_memory, own_memory->device, address, bytes, what);
    check_warps(*own_memory, address, bytes, touch);
    if (!is_far) return;
    count_far(static_cast<int64_t>(bytes));
  } else if (!is_on_device) {
    check_host(address, bytes, what);
    const auto words = static_cast<int64_t>((bytes + 7) / 8);
    call_counts().host_accesses.fetch_add(words, std::memory_order_relaxed);
  }
}

}  // namespace

void hook_release(void*) {}
void hook_acquire(void*) {}
void* hook_create_fiber() {
  return nullptr;
}
void* hook_current_fiber() {
  return nullptr;
}
void hook_switch(void*) {}
void hook_read(const void*, size_t) {}
void hook_write(void*, size_t) {}
void hook_release_memory(void* memory, size_t bytes) {
  forget_touches(memory, bytes);
}

}  // namespace emulated

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define LSM_ACCESS(BYTES)                                               \
  void __tsan_read##BYTES(void* memory) {                               \
    emulated::check<BYTES, emulated::Touch::kRead>(memory, "a read");   \
  }                                                                     \
  void __tsan_write##BYTES(void* memory) {                              \
    emulated::check<BYTES, emulated::Touch::kWrite>(memory, "a write"); \
  }
LSM_ACCESS(1)
LSM_ACCESS(2)
LSM_ACCESS(4)
LSM_ACCESS(8)
LSM_ACCESS(16)

void __tsan_read_range(void* memory, unsigned long bytes) {
  emulated::check_range(memory, bytes, "a read");
}
void __tsan_write_range(void* memory, unsigned long bytes) {
  emulated::check_range(memory, bytes, "a write", emulated::Touch::kWrite);
}

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

#define LSM_CHECK(T)                                                                 \
  emulated::check<sizeof(T), emulated::Touch::kAtomic>(const_cast<const T*>(memory), \
                                                       "an atomic operation")
#define LSM_FETCH(T, NAME, OPERATION)                             \
  T NAME##OPERATION(volatile T* memory, T value, int) {           \
    LSM_CHECK(T);                                                 \
    return __atomic_##OPERATION(memory, value, __ATOMIC_SEQ_CST); \
  }
#define LSM_ATOMIC(T, NAME)                                                               \
  T NAME##load(const volatile T* memory, int) {                                           \
    LSM_CHECK(T);                                                                         \
    return __atomic_load_n(memory, __ATOMIC_SEQ_CST);                                     \
  }                                                                                       \
  void NAME##store(volatile T* memory, T value, int) {                                    \
    LSM_CHECK(T);                                                                         \
    __atomic_store_n(memory, value, __ATOMIC_SEQ_CST);                                    \
  }                                                                                       \
  T NAME##exchange(volatile T* memory, T value, int) {                                    \
    LSM_CHECK(T);                                                                         \
    return __atomic_exchange_n(memory, value, __ATOMIC_SEQ_CST);                          \
  }                                                                                       \
  LSM_FETCH(T, NAME, fetch_add)                                                           \
  LSM_FETCH(T, NAME, fetch_sub)                                                           \
  LSM_FETCH(T, NAME, fetch_and)                                                           \
  LSM_FETCH(T, NAME, fetch_or)                                                            \
  LSM_FETCH(T, NAME, fetch_xor)                                                           \
  int NAME##compare_exchange_strong(volatile T* memory, T* expected, T value, int, int) { \
    LSM_CHECK(T);                                                                         \
    return __atomic_compare_exchange_n(memory, expected, value, false, __ATOMIC_SEQ_CST,  \
                                       __ATOMIC_SEQ_CST);                                 \
  }                                                                                       \
  int NAME##compare_exchange_weak(volatile T* memory, T* expected, T value, int, int) {   \
    return NAME##compare_exchange_strong(memory, expected, value, 0, 0);                  \
  }
LSM_ATOMIC(uint8_t, __tsan_atomic8_)
LSM_ATOMIC(uint16_t, __tsan_atomic16_)
LSM_ATOMIC(uint32_t, __tsan_atomic32_)
LSM_ATOMIC(uint64_t, __tsan_atomic64_)

// Linked with --wrap: what files of the build ask the C library to do to memory.
void* __real_memcpy(void* target, const void* source, size_t bytes);
void* __real_memmove(void* target, const void* source, size_t bytes);
void* __real_memset(void* target, int byte, size_t bytes);
int __real_memcmp(const void* a, const void* b, size_t bytes);
ssize_t __real_pread(int file, void* target, size_t bytes, off_t offset);

void* __wrap_memcpy(void* target, const void* source, size_t bytes) {
  emulated::check_range(source, bytes, "memcpy from");
  emulated::check_range(target, bytes, "memcpy to", emulated::Touch::kWrite);
  return __real_memcpy(target, source, bytes);
}
void* __wrap_memmove(void* target, const void* source, size_t bytes) {
  emulated::check_range(source, bytes, "memmove from");
  emulated::check_range(target, bytes, "memmove to", emulated::Touch::kWrite);
  return __real_memmove(target, source, bytes);
}
void* __wrap_memset(void* target, int byte, size_t bytes) {
  emulated::check_range(target, bytes, "memset", emulated::Touch::kWrite);
  return __real_memset(target, byte, bytes);
}
int __wrap_memcmp(const void* a, const void* b, size_t bytes) {
  emulated::check_range(a, bytes, "memcmp");
  emulated::check_range(b, bytes, "memcmp");
  return __real_memcmp(a, b, bytes);
}
ssize_t __wrap_pread(int file, void* target, size_t bytes, off_t offset) {
  emulated::check_range(target, bytes, "pread to");
  return __real_pread(file, target, bytes, offset);
}

}  // extern "C"
