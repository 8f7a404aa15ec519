// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/hooks.h"

extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* token);
void __tsan_release(void* token);
void __tsan_write_range(void* memory, unsigned long bytes);
void __tsan_read_range(void* memory, unsigned long bytes);
}

namespace emulated {

void hook_release(void* token) {
  __tsan_release(token);
}
void hook_acquire(void* token) {
  __tsan_acquire(token);
}
void* hook_create_fiber() {
  return __tsan_create_fiber(0);
}
void* hook_current_fiber() {
  return __tsan_get_current_fiber();
}
void hook_switch(void* fiber) {
  constexpr unsigned kNoSync = 1;
  __tsan_switch_to_fiber(fiber, kNoSync);
}
void hook_read(const void* memory, size_t bytes) {
  __tsan_read_range(const_cast<void*>(memory), bytes);
}
void hook_write(void* memory, size_t bytes) {
  __tsan_write_range(memory, bytes);
}
void hook_release_memory(void*, size_t) {}

}  // namespace emulated
