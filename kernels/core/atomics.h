// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The atomic operations of code that runs as a grid or as a loop. Unless they say otherwise they
// are relaxed, at device scope: they settle who was first, and only a later kernel reads the data
// that they protect.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/core/macros.h"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace lsm {

/// Lowers *target to `value` if that is less. Returns the value before.
template <class T>
LSM_HOST_DEVICE T atomic_min(T* target, T value) {
#if defined(__CUDA_ARCH__)
  return cuda::atomic_ref<T, cuda::thread_scope_device>(*target).fetch_min(
      value, cuda::memory_order_relaxed);
#else
  const std::atomic_ref<T> shared(*target);
  T held = shared.load(std::memory_order_relaxed);
  while (value < held && !shared.compare_exchange_weak(held, value, std::memory_order_relaxed)) {
  }
  return held;
#endif
}

/// Adds `value` to *target. Returns the value before.
template <class T>
LSM_HOST_DEVICE T atomic_add(T* target, T value) {
#if defined(__CUDA_ARCH__)
  return cuda::atomic_ref<T, cuda::thread_scope_device>(*target).fetch_add(
      value, cuda::memory_order_relaxed);
#else
  return std::atomic_ref<T>(*target).fetch_add(value, std::memory_order_relaxed);
#endif
}

/// The value of *target, while others write to it.
template <class T>
LSM_HOST_DEVICE T atomic_load(T* target) {
#if defined(__CUDA_ARCH__)
  return cuda::atomic_ref<T, cuda::thread_scope_device>(*target).load(cuda::memory_order_relaxed);
#else
  return std::atomic_ref<T>(*target).load(std::memory_order_relaxed);
#endif
}

/// The value of *target once it is not zero. Precondition: a running thread writes it, and waits
/// for nothing before.
template <class T>
LSM_HOST_DEVICE T atomic_await(T* target) {
  T held = atomic_load(target);
  while (held == 0) {
#if defined(__CUDA_ARCH__)
    __nanosleep(32);
#endif
    held = atomic_load(target);
  }
  return held;
}

/// Writes `value` to *target, which others read.
template <class T>
LSM_HOST_DEVICE void atomic_store(T* target, T value) {
#if defined(__CUDA_ARCH__)
  cuda::atomic_ref<T, cuda::thread_scope_device>(*target).store(value, cuda::memory_order_relaxed);
#else
  std::atomic_ref<T>(*target).store(value, std::memory_order_relaxed);
#endif
}

/// Writes `value` to *target if that holds `expected`; returns the value before.
template <class T>
LSM_HOST_DEVICE T atomic_compare_exchange(T* target, T expected, T value) {
#if defined(__CUDA_ARCH__)
  cuda::atomic_ref<T, cuda::thread_scope_device>(*target).compare_exchange_strong(
      expected, value, cuda::memory_order_relaxed);
  return expected;
#else
  std::atomic_ref<T>(*target).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  return expected;
#endif
}

/// Who sees an atomic operation in order.
enum class Scope : uint8_t { kDevice, kSystem };

/// Adds one to *count. Later accesses stay after it.
template <Scope kScope>
LSM_HOST_DEVICE void atomic_acquire(uint32_t* count) {
#if defined(__CUDA_ARCH__)
  constexpr auto scope =
      kScope == Scope::kDevice ? cuda::thread_scope_device : cuda::thread_scope_system;
  cuda::atomic_ref<uint32_t, scope>(*count).fetch_add(1, cuda::memory_order_acquire);
#else
  std::atomic_ref<uint32_t>(*count).fetch_add(1, std::memory_order_acquire);
#endif
}

/// Takes one from *count. Earlier accesses stay before it.
template <Scope kScope>
LSM_HOST_DEVICE void atomic_release(uint32_t* count) {
#if defined(__CUDA_ARCH__)
  constexpr auto scope =
      kScope == Scope::kDevice ? cuda::thread_scope_device : cuda::thread_scope_system;
  cuda::atomic_ref<uint32_t, scope>(*count).fetch_sub(1, cuda::memory_order_release);
#else
  std::atomic_ref<uint32_t>(*count).fetch_sub(1, std::memory_order_release);
#endif
}

}  // namespace lsm
