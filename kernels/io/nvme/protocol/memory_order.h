// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory accesses that the controller, or another thread of the host or of the GPU, observes: one
// spelling for host and device. All have system scope, because the other side is across PCI
// Express.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#if defined(__CUDA_ARCH__)
#include <cuda/atomic>
#else
#include <atomic>
#endif

namespace lsm::nvme {

#if defined(__CUDA_ARCH__)
template <class T>
using SystemAtomic = ::cuda::atomic_ref<T, ::cuda::thread_scope_system>;
namespace order = ::cuda::std;
#else
template <class T>
using SystemAtomic = std::atomic_ref<T>;
namespace order = std;
#endif

template <class T>
LSM_HOST_DEVICE inline T load_acquire(T& value) {
  return SystemAtomic<T>(value).load(order::memory_order_acquire);
}

template <class T>
LSM_HOST_DEVICE inline void store_release(T& value, T desired) {
  SystemAtomic<T>(value).store(desired, order::memory_order_release);
}

template <class T>
LSM_HOST_DEVICE inline T exchange(T& value, T desired) {
  return SystemAtomic<T>(value).exchange(desired, order::memory_order_acq_rel);
}

/// Replaces `expected` by `desired`. On failure `expected` becomes the present value.
template <class T>
LSM_HOST_DEVICE inline bool compare_exchange(T& value, T& expected, T desired) {
  return SystemAtomic<T>(value).compare_exchange_strong(
      expected, desired, order::memory_order_acq_rel, order::memory_order_acquire);
}

/// Writes a doorbell: one 32-bit store to the controller's registers, after everything that this
/// thread wrote or saw before (queue entries, PRP lists) has become visible to the controller.
LSM_HOST_DEVICE inline void write_doorbell(uint32_t* doorbell, uint32_t value) {
#if defined(__CUDA_ARCH__)
  // A release orders writes to memory; the fence makes them visible at system scope, and .mmio
  // keeps the store a single one that is neither cached nor split.
  __threadfence_system();
  asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;" ::"l"(doorbell), "r"(value) : "memory");
#else
#if defined(__aarch64__)
  // A release orders memory as other cores see it; a drive is outside of that domain.
  asm volatile("dmb oshst" ::: "memory");
#endif
  // On x86 stores to memory and to uncached registers stay in order, so a release suffices: it only
  // keeps the compiler from moving them. The emulated controller pairs its acquire with it.
  store_release(*doorbell, value);
#endif
}

}  // namespace lsm::nvme
