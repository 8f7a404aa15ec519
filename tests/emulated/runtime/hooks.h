// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The differences of the two builds. race_hooks.cpp tells the thread sanitizer of lanes, streams
// and events, and of nothing else; memory_hooks.cpp checks every access that the sanitizer's
// instrumentation reports, and knows no order.
#pragma once

#include <cstddef>

#include "tests/emulated/runtime/memory.h"

namespace emulated {

void hook_release(void* token);
void hook_acquire(void* token);
void* hook_create_fiber();
void* hook_current_fiber();
/// To another fiber of this thread, which gives no order.
void hook_switch(void* fiber);
/// Accesses of a stream itself.
void hook_read(const void* memory, size_t bytes);
void hook_write(void* memory, size_t bytes);
/// It is gone for good; whole pages.
void hook_release_memory(void* memory, size_t bytes);

/// Something that what comes before it releases and what comes after it acquires. Places are used
/// again after many others: an order too many then, never one too few.
class Token {
 public:
  Token();
  void release() const { hook_release(place_); }
  void acquire() const { hook_acquire(place_); }

 private:
  void* place_;
};

/// The memory that the lane in this thread may touch; null on the host.
inline thread_local const OwnMemory* own_memory = nullptr;
/// True while this thread plays the device, whose memory it may then touch. Volatile, because the
/// compiler takes memset() for a function that does not look at it.
inline thread_local volatile bool is_on_device = false;

class OnDevice {
 public:
  OnDevice() : was_(is_on_device) { is_on_device = true; }
  ~OnDevice() { is_on_device = was_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const bool was_;
};

}  // namespace emulated
