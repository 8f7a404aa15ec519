// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The scope of atomic operations: at device scope they order what threads of one device do, and
// nothing for the host or another device.
#include <cuda_runtime.h>

#include "tests/emulated/runtime/hooks.h"

namespace emulated {
namespace {

/// The order of this device's operations at this address. Addresses may share one, which gives an
/// order too many, never one too few.
void* token_of(const void* memory) {
  constexpr uintptr_t kNumTokens = 1 << 16;
  static char tokens[kNumDevices + 1][kNumTokens][8];
  const int device = own_memory == nullptr ? kHost : own_memory->device;
  return tokens[device][reinterpret_cast<uintptr_t>(memory) / sizeof(uint32_t) % kNumTokens];
}

bool acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}
bool releases(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_acquire;
}

}  // namespace

void begin_scoped(const void* memory, bool is_of_device, std::memory_order order) {
  if (own_memory != nullptr) {
    const bool is_seen = !is_on_gpu(memory) && !is_pageable_reachable();
    if (is_of_device && is_seen) {
      report("%s on device %d: an atomic operation of device scope at %p, which the host sees",
             own_memory->kernel, own_memory->device, memory);
    }
    if (order != std::memory_order_relaxed) own_memory->launch->is_ordered = true;
  }
  if (releases(order)) hook_release(token_of(memory));
}

void end_scoped(const void* memory, std::memory_order order) {
  if (acquires(order)) hook_acquire(token_of(memory));
}

}  // namespace emulated
