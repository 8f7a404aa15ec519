// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Names that nvcc knows by itself: qualifiers, indices, intrinsics, and launches, which
// translate.py writes as calls of emulated::launch(). Every file of the build includes it first.
#pragma once

#include <cuda_runtime_api.h>

#include <sched.h>

#include <atomic>
#include <bit>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(threads)

struct Dim {
  unsigned x;
};

namespace emulated {

// In the runtime, so that reading them is no access of the kernel.
Dim thread_index();
Dim block_index();
Dim block_size();
Dim grid_size();

enum class Meeting : uint8_t { kSyncWarp, kShuffle, kShuffleXor, kBallot };

/// The meeting of a warp's lanes: each brings a value and gets its answer. One that comes with
/// another meeting, another mask or from another line than the rest is an error.
uint64_t meet(Meeting meeting, uint32_t mask, uint64_t value, uint32_t argument, const char* file,
              int line);

/// Around an atomic operation, by which threads of a device may order their accesses. Ends the
/// process if the host sees it, too, and its scope is the device.
void begin_scoped(const void* memory, bool is_of_device, std::memory_order order);
void end_scoped(const void* memory, std::memory_order order);

/// The effects of a memory fence of system scope and of a store to a device's registers.
void fence_system();
bool take_fence();

/// Says whether the run plants this mutation (mutations.py).
bool is_planted(const char* mutation);

/// Runs body() for every thread of the grid, in `stream`. `parameters`: memory that is the
/// launch's, which threads may read.
struct LaunchShape {
  unsigned num_blocks;
  unsigned block_threads;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  unsigned max_threads = 1024;  // of a block, by the kernel's __launch_bounds__
};
inline LaunchShape make_shape(int64_t num_blocks, int64_t block_threads, size_t shared_bytes = 0,
                              cudaStream_t stream = nullptr) {
  return {static_cast<unsigned>(num_blocks), static_cast<unsigned>(block_threads), shared_bytes,
          stream};
}
inline LaunchShape with_bounds(LaunchShape shape, int64_t max_threads) {
  shape.max_threads = static_cast<unsigned>(max_threads);
  return shape;
}
struct LaunchBody {
  const void* parameters;
  size_t parameter_bytes;
  void (*run)(const void* parameters);
  void (*destroy)(const void* parameters);
};
void launch(const char* kernel, const LaunchShape& shape, const LaunchBody& body);

template <class Kernel, class... Parameters>
void launch(const char* name, const LaunchShape& shape, Kernel, const Parameters&... parameters) {
  using Copies = std::tuple<Parameters...>;
  const auto run = [](const void* copies) {
    std::apply(Kernel{}, *static_cast<const Copies*>(copies));
  };
  const auto destroy = [](const void* copies) { delete static_cast<const Copies*>(copies); };
  launch(name, shape, LaunchBody{new Copies(parameters...), sizeof(Copies), run, destroy});
}

inline void store_mmio(uint32_t* target, uint32_t value) {
  const std::atomic_ref<uint32_t> shared(*target);
  if (take_fence()) {
    shared.store(value, std::memory_order_release);
  } else {
    shared.store(value, std::memory_order_relaxed);
  }
}

template <class T>
T shuffle(Meeting meeting, uint32_t mask, T value, uint32_t argument, const char* file, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_integral_v<T>);
  return static_cast<T>(meet(meeting, mask, static_cast<uint64_t>(value), argument, file, line));
}

}  // namespace emulated

#define threadIdx (::emulated::thread_index())
#define blockIdx (::emulated::block_index())
#define blockDim (::emulated::block_size())
#define gridDim (::emulated::grid_size())

inline void __syncwarp(uint32_t mask = ~0u, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  emulated::meet(emulated::Meeting::kSyncWarp, mask, 0, 0, file, line);
}
inline uint32_t __ballot_sync(uint32_t mask, bool vote, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return static_cast<uint32_t>(
      emulated::meet(emulated::Meeting::kBallot, mask, vote ? 1 : 0, 0, file, line));
}
template <class T>
T __shfl_sync(uint32_t mask, T value, int lane, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  return emulated::shuffle(emulated::Meeting::kShuffle, mask, value, static_cast<uint32_t>(lane),
                           file, line);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  return emulated::shuffle(emulated::Meeting::kShuffleXor, mask, value,
                           static_cast<uint32_t>(lanes), file, line);
}
/// Workers are more than the machine may have cores.
inline void __nanosleep(unsigned) {
  sched_yield();
}
inline void __threadfence_system() {
  emulated::fence_system();
}
inline int __popc(uint32_t bits) {
  return std::popcount(bits);
}
inline uint32_t __float_as_uint(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline float __uint_as_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
/// 16 bytes at once, as the streaming store of CUDA takes them.
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
template <class T>
void __stcs(T* target, T value) {
  *target = value;
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
