// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The memory of the devices and page-locked memory: who may touch what.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/emulated/runtime/counts.h"

namespace emulated {

inline constexpr int kNumDevices = 2;
inline constexpr int kHost = kNumDevices;  // the place of page-locked memory

/// Prints what was found, and ends the process.
[[noreturn, gnu::format(printf, 1, 2)]] void report(const char* format, ...);

/// Memory that is larger is not poisoned but zero, so that it costs nothing before it is touched.
inline constexpr size_t kLarge = size_t{64} << 20;
/// Poisoned memory of a device, or page-locked memory (kHost); null if there is no more.
void* allocate(int place, size_t bytes);
/// Fills device memory, or page-locked memory; large memory with zeros by giving its pages back.
void fill(void* memory, int byte, size_t bytes);
/// The place of live memory that begins at `memory`, -1 where none does.
int place_of(const void* memory);
size_t size_of(const void* memory);
/// Poisons it, and takes it away for good: addresses are not used again.
void release(void* memory);

/// Memory of the process that was there before, as cudaHostRegister() takes it.
bool register_range(void* memory, size_t bytes, int device);
/// The device that it was registered with, -1 if it was not.
int unregister_range(void* memory);

/// Notes that `device` has mapped memory of another device, or has not.
void set_peer_access(void* memory, int device, bool has_access);

/// A launch, as its warps know it.
struct Launch {
  uint32_t number;
  /// True if a warp made an atomic operation that orders memory, or a fence. The race build then
  /// tells the order of its warps.
  std::atomic<bool> is_ordered{false};
};

/// A lane's loads and stores.
struct LaneTraffic {
  std::vector<uintptr_t> sectors;
  int64_t instructions = 0;
  uintptr_t end = 0;  // of the last one
};

/// Memory that a kernel may touch, other than that of its device and page-locked memory.
struct OwnMemory {
  uintptr_t stack, stack_bytes, parameters, parameter_bytes;
  const char* kernel;
  int device;
  uint32_t warp;  // of the launch
  Launch* launch;
  bool holds_sms;
  KernelCounts* counts;
  LaneTraffic* traffic;  // null where it is not counted
};

/// Ends the process unless a kernel may touch this. `own`: null for copies of a stream. Returns
/// whether it lies across the bus.
bool check_kernel(const OwnMemory* own, int device, uintptr_t address, size_t bytes,
                  const char* what);
/// Ends the process if it is memory of a device, which the host must not touch.
void check_host(uintptr_t address, size_t bytes, const char* what);

/// Addresses of all memory that cudaMalloc() and cudaHostAlloc() give.
uintptr_t memory_begin();
size_t memory_bytes();
/// True if any of it is memory that cudaMalloc() or cudaHostAlloc() gave.
bool is_allocated(const void* memory);
/// True if it is memory of a device.
bool is_on_gpu(const void* memory);
/// True if `bytes` from `memory` on are page-locked or of a device.
bool is_reachable(const void* memory, size_t bytes);
/// True if kernels and copies treat all memory of the process as page-locked: for callers whose
/// memory would be, or would be a GPU's (the Python tests of the twins).
bool is_pageable_reachable();

/// Memory that nobody has written holds this.
inline constexpr unsigned char kPoison = 0xDB;

}  // namespace emulated
