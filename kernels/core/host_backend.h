// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A Backend runs single-source code: it owns memory and launches functors over items. This one is
// the host; CudaBackend (cuda_backend.h) is a GPU. Both work strictly in the order of the calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#include "kernels/core/lanes.h"

namespace lsm {

/// Runs a GPU's code item by item: the twin, which tests compare with a GPU and which works without
/// one. `backwards`: starts with the last item and the last lane; no result may depend on it.
class HostBackend {
 public:
  using Warp = HostWarp;

  explicit HostBackend(bool backwards = false) : backwards_(backwards) {}

  /// Must be called by a thread before the functions below.
  void enter() const {}

  void* allocate(size_t bytes) {
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  /// Memory that the host reads and writes too; page-locked on a GPU.
  void* allocate_pinned(size_t bytes) { return allocate(bytes); }
  void release(void* memory) { std::free(memory); }
  void release_pinned(void* memory) { std::free(memory); }

  /// Copies host memory to the backend. The source may change as soon as this returns.
  void upload(void* target, const void* host, size_t bytes) { copy(target, host, bytes); }
  /// Copies to host memory, where the bytes are valid once synchronize() has returned.
  void download(void* host, const void* source, size_t bytes) { copy(host, source, bytes); }
  void copy(void* target, const void* source, size_t bytes) {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void fill(void* target, int byte, size_t bytes) {
    if (bytes > 0) std::memset(target, byte, bytes);
  }

  /// Calls f(i) for i in [0, count).
  template <class F>
  void for_each(int64_t count, const F& f) {
    for (int64_t i = 0; i < count; ++i) f(backwards_ ? count - 1 - i : i);
  }
  /// Calls f(warp, i) for i in [0, count).
  template <class F>
  void for_each_warp(int64_t count, const F& f) {
    const HostWarp warp(backwards_);
    for (int64_t i = 0; i < count; ++i) f(warp, backwards_ ? count - 1 - i : i);
  }

  /// Sorts by the low `bits` bits of the keys; equal keys keep their order. in and out differ.
  void sort_pairs(const uint32_t* keys_in, uint32_t* keys_out, const uint32_t* values_in,
                  uint32_t* values_out, int64_t count, int bits) {
    const uint32_t mask = bits >= 32 ? UINT32_MAX : (uint32_t{1} << bits) - 1;
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return (keys_in[a] & mask) < (keys_in[b] & mask);
    });
    for (int64_t i = 0; i < count; ++i) {
      keys_out[i] = keys_in[order[i]];
      values_out[i] = values_in[order[i]];
    }
  }

  /// A point in the order of the calls, for other backends and threads. An unrecorded event has
  /// passed.
  struct Event {
    explicit Event(const HostBackend&) {}
  };
  void record(Event&) {}
  /// Makes later calls wait for the event.
  void block(const Event&) {}
  /// Blocks the calling thread until the event has passed.
  void wait(const Event&, const char*) {}

  void synchronize() {}
  /// synchronize() for destructors, without errors and downloads.
  void drain() noexcept {}
  intptr_t stream_number() const { return 0; }

 private:
  const bool backwards_;
};

}  // namespace lsm
