// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Devices, memory, copies, launches and the algorithm of CUB.
#include <cuda_runtime.h>
#include <cub/device/device_radix_sort.cuh>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "tests/emulated/runtime/failures.h"
#include "tests/emulated/runtime/hooks.h"
#include "tests/emulated/runtime/memory.h"
#include "tests/emulated/runtime/streams.h"
#include "tests/emulated/runtime/waiting.h"
#include "tests/emulated/runtime/warps.h"

using namespace emulated;

namespace emulated {

Token::Token() {
  constexpr uint32_t kNumPlaces = 1 << 16;
  static char places[kNumPlaces][8];
  static std::atomic<uint32_t> num_made{0};
  place_ = places[num_made++ % kNumPlaces];
}

bool is_planted(const char* mutation) {
  static const char* const planted = std::getenv("LSM_EMULATED_MUTATION");
  return planted != nullptr && std::strcmp(planted, mutation) == 0;
}

void launch(const char* kernel, const LaunchShape& shape, const LaunchBody& body) {
  CUstream_st& stream = stream_of(shape.stream, kernel);
  if (shape.num_blocks == 0 || shape.block_threads == 0 || shape.block_threads > 1024) {
    report("%s: a launch of %u blocks of %u threads", kernel, shape.num_blocks,
           shape.block_threads);
  }
  if (shape.block_threads > shape.max_threads) {
    report("%s: blocks of %u threads, and its __launch_bounds__ are %u", kernel,
           shape.block_threads, shape.max_threads);
  }
  if (shape.shared_bytes != 0) report("%s: shared memory is not played", kernel);
  if (fails()) {
    failed(cudaErrorUnknown);
    body.destroy(body.parameters);
    return;
  }
  const int device = device_of(stream);
  ++call_counts().launches;
  constexpr unsigned kFewBlocks = 16;
  const bool holds_sms = shape.num_blocks > kFewBlocks || !has_lowest_priority(stream);
  enqueue(stream, [=] {
    run_kernel(kernel, device, shape, body, holds_sms);
    body.destroy(body.parameters);
  });
}

namespace {

void check(int device, const void* memory, size_t bytes, const char* what) {
  check_kernel(nullptr, device, reinterpret_cast<uintptr_t>(memory), bytes, what);
}

/// A stream writes all of it. Of large memory the sanitizer is told of the first part only: its own
/// memory is some times as much.
void mark_written(void* memory, size_t bytes) {
  hook_write(memory, std::min(bytes, kLarge));
}

/// A read by a stream of the GPU's or of page-locked memory.
template <class T>
const T* reads(int device, const T* memory, size_t count, const char* what) {
  check(device, memory, count * sizeof(T), what);
  hook_read(memory, count * sizeof(T));
  return memory;
}
template <class T>
T* writes(int device, T* memory, size_t count, const char* what) {
  check(device, memory, count * sizeof(T), what);
  hook_write(memory, count * sizeof(T));
  return memory;
}

}  // namespace
}  // namespace emulated

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorUnknown:
      return "cudaErrorUnknown";
    default:
      return "cudaError";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "error of the emulated GPU";
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = kNumDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= kNumDevices) return cudaErrorInvalidDevice;
  *properties = {"Emulated GPU", 9, 0, size_t{16} << 30};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  // Of writes of other devices: they are not ordered, as in the worst of machines.
  const bool is_ordering = attribute == cudaDevAttrGPUDirectRDMAWritesOrdering;
  *value = is_ordering ? cudaGPUDirectRDMAWritesOrderingNone : 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget,
                                               cudaFlushGPUDirectRDMAWritesScope) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int device) {
  std::snprintf(name, static_cast<size_t>(bytes), "0000:0%d:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* name) {
  char known[32];
  for (*device = 0; *device < kNumDevices; ++*device) {
    cudaDeviceGetPCIBusId(known, sizeof known, *device);
    if (std::strcmp(known, name) == 0) return cudaSuccess;
  }
  return cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceCanAccessPeer(int* can_access, int, int) {
  *can_access = 1;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  check_captures("cudaMalloc");
  EMULATED_MAY_FAIL(cudaErrorMemoryAllocation);
  ++call_counts().allocations;
  *memory = bytes == 0 ? nullptr : allocate(current_device(), bytes);
  if (*memory != nullptr) ++live_counts().memory;
  return *memory != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  check_captures("cudaFree");
  const int device = place_of(memory);
  if (device < 0 || device == kHost) report("cudaFree: %p is no memory of a device", memory);
  check_current(device, "cudaFree");
  ++call_counts().allocations;
  --live_counts().memory;
  wait_for_device(device);
  const OnDevice scope;
  mark_written(memory, size_of(memory));
  release(memory);
  return cudaSuccess;
}

/// Its memory is taken from the device anew each time; only bytes are counted as a pool's are.
struct CUmemPool_st {
  int device;
  Lock lock;
  uint64_t reserved = 0;
  uint64_t used = 0;
  std::map<const void*, uint64_t> allocated;

  void add(const void* memory, uint64_t bytes) {
    const std::lock_guard guard(lock);
    allocated[memory] = bytes;
    used += bytes;
    reserved = std::max(reserved, used);
  }
  void remove(const void* memory) {
    const std::lock_guard guard(lock);
    used -= allocated[memory];
    allocated.erase(memory);
  }
  void trim(uint64_t kept_bytes) {
    const std::lock_guard guard(lock);
    reserved = std::max(used, std::min(reserved, kept_bytes));
  }
};

namespace {

/// The pool of each live allocation of all pools.
struct PoolUsers {
  Lock lock;
  std::map<const void*, cudaMemPool_t> pools;

  static PoolUsers& all() {
    static PoolUsers* const users = new PoolUsers;
    return *users;
  }
  void add(const void* memory, cudaMemPool_t pool) {
    const std::lock_guard guard(lock);
    pools[memory] = pool;
  }
  cudaMemPool_t take(const void* memory) {
    const std::lock_guard guard(lock);
    const auto found = pools.find(memory);
    if (found == pools.end()) report("cudaFreeAsync: %p is no memory of a pool", memory);
    const cudaMemPool_t pool = found->second;
    pools.erase(found);
    return pool;
  }
};

}  // namespace

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  ++live_counts().pools;
  *pool = new CUmemPool_st{.device = properties->location.id};
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  --live_counts().pools;
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  const std::lock_guard guard(pool->lock);
  auto& bytes = *static_cast<uint64_t*>(value);
  if (attribute == cudaMemPoolAttrReservedMemCurrent) {
    bytes = pool->reserved;
  } else if (attribute == cudaMemPoolAttrUsedMemCurrent) {
    bytes = pool->used;
  } else {
    report("cudaMemPoolGetAttribute: attribute %d is not played", attribute);
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept_bytes) {
  check_captures("cudaMemPoolTrimTo");
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  pool->trim(kept_bytes);
  return cudaSuccess;
}
/// There for what comes later in the stream, and in others only behind that.
cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t handle) {
  CUstream_st& stream = stream_of(handle, "cudaMallocFromPoolAsync");
  check_captures("cudaMallocFromPoolAsync");
  EMULATED_MAY_FAIL(cudaErrorMemoryAllocation);
  if (pool->device != device_of(stream)) report("cudaMallocFromPoolAsync: another device's pool");
  ++call_counts().allocations;
  *memory = bytes == 0 ? nullptr : allocate(pool->device, bytes);
  if (*memory == nullptr) return bytes == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation;
  ++live_counts().memory;
  pool->add(*memory, bytes);
  PoolUsers::all().add(*memory, pool);
  enqueue(stream, [start = *memory, bytes] { mark_written(start, bytes); });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t handle) {
  CUstream_st& stream = stream_of(handle, "cudaFreeAsync");
  check_captures("cudaFreeAsync");
  if (place_of(memory) != device_of(stream)) {
    report("cudaFreeAsync: %p is no memory of the stream's device", memory);
  }
  ++call_counts().allocations;
  --live_counts().memory;
  enqueue(stream, [memory, pool = PoolUsers::all().take(memory)] {
    mark_written(memory, size_of(memory));
    release(memory);
    pool->remove(memory);
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  check_captures("cudaHostAlloc");
  EMULATED_MAY_FAIL(cudaErrorMemoryAllocation);
  ++call_counts().allocations;
  *memory = allocate(kHost, bytes);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  ++live_counts().memory;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  check_captures("cudaFreeHost");
  if (place_of(memory) != kHost) report("cudaFreeHost: %p is no page-locked memory", memory);
  ++call_counts().allocations;
  --live_counts().memory;
  for (int device = 0; device < kNumDevices; ++device) wait_for_device(device);
  mark_written(memory, size_of(memory));
  release(memory);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  check_captures("cudaHostRegister");
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  if (is_allocated(memory)) return cudaErrorInvalidValue;
  if (!register_range(memory, bytes, current_device())) {
    return cudaErrorHostMemoryAlreadyRegistered;
  }
  ++live_counts().ranges;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  check_captures("cudaHostUnregister");
  const int device = unregister_range(memory);
  if (device < 0) report("cudaHostUnregister: %p is not registered", memory);
  check_current(device, "cudaHostUnregister");
  --live_counts().ranges;
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** on_device, void* memory, unsigned) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  *on_device = memory;
  return cudaSuccess;
}

namespace {
struct Exported {
  void* memory;
  pid_t process;
};
}  // namespace

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  const Exported exported{memory, getpid()};
  *handle = {};
  std::memcpy(handle, &exported, sizeof exported);
  return cudaSuccess;
}
/// Within one process only, where CUDA has it between processes only: the mapping's address is the
/// memory's own.
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  check_captures("cudaIpcOpenMemHandle");
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  Exported exported;
  std::memcpy(&exported, &handle, sizeof exported);
  if (exported.process != getpid()) return cudaErrorInvalidValue;
  *memory = exported.memory;
  set_peer_access(*memory, current_device(), true);
  ++live_counts().mappings;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  if (place_of(memory) >= 0) set_peer_access(memory, current_device(), false);
  --live_counts().mappings;
  return cudaSuccess;
}

namespace {

/// Counts the bytes of a copy that cross the bus.
void count_copy(const void* target, const void* source, size_t bytes) {
  const bool is_from_gpu = is_on_gpu(source), is_to_gpu = is_on_gpu(target);
  if (is_from_gpu == is_to_gpu) return;
  auto& crossing = is_to_gpu ? call_counts().to_gpu_bytes : call_counts().from_gpu_bytes;
  crossing += static_cast<int64_t>(bytes);
}

}  // namespace

namespace {

/// Ends the process unless the kind says where both are: CUDA refuses such a copy.
void check_kind(const void* target, const void* source, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return;
  const auto is_there = [](const void* memory, bool on_gpu) {
    // Python's tensors may be thought to be the GPU's.
    return is_on_gpu(memory) == on_gpu || (is_pageable_reachable() && !is_allocated(memory));
  };
  const bool from_gpu = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_gpu = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (is_there(source, from_gpu) && is_there(target, to_gpu)) return;
  report("cudaMemcpyAsync: a copy from %p to %p, which has the kind of a copy from %s to %s",
         source, target, from_gpu ? "a GPU" : "the host", to_gpu ? "a GPU" : "the host");
}

}  // namespace

/// As CUDA has it for memory that is not page-locked: what is copied from it may change at once,
/// and what is copied to it is there on return.
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle) {
  CUstream_st& stream = stream_of(handle, "cudaMemcpyAsync");
  const int device = device_of(stream);
  if (bytes == 0) return cudaSuccess;
  check_kind(target, source, kind);
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  const bool is_to_pageable = !is_pageable_reachable() && !is_reachable(target, bytes);
  count_copy(target, source, bytes);
  std::vector<std::byte> staged;
  if (!is_reachable(source, bytes)) {
    const auto* const first = static_cast<const std::byte*>(source);
    staged.assign(first, first + bytes);
  }
  enqueue(stream, [=, staged = std::move(staged)] {
    if (staged.empty()) check(device, source, bytes, "a copy from");
    if (!is_to_pageable) check(device, target, bytes, "a copy to");
    std::memcpy(target, staged.empty() ? source : staged.data(), bytes);
  });
  if (is_to_pageable) {
    count_wait();
    wait_for(mark(stream));
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* target, int byte, size_t bytes, cudaStream_t handle) {
  CUstream_st& stream = stream_of(handle, "cudaMemsetAsync");
  const int device = device_of(stream);
  if (bytes == 0) return cudaSuccess;
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  enqueue(stream, [=] {
    check(device, target, bytes, "a fill of");
    mark_written(target, bytes);
    fill(target, byte, bytes);
  });
  return cudaSuccess;
}

namespace cub {

cudaError_t DeviceRadixSort::SortPairs(void* scratch, size_t& scratch_bytes,
                                       const uint32_t* keys_in, uint32_t* keys_out,
                                       const uint32_t* values_in, uint32_t* values_out, int count,
                                       int first_bit, int end_bit, cudaStream_t handle) {
  EMULATED_MAY_FAIL(cudaErrorUnknown);
  if (scratch == nullptr) {
    scratch_bytes = 256 + static_cast<size_t>(count) * 8;
    return cudaSuccess;
  }
  CUstream_st& stream = stream_of(handle, "SortPairs");
  call_counts().launches += 2 + (end_bit - first_bit + 7) / 8;  // histograms, sums, digits
  enqueue(stream, [=, device = device_of(stream), bytes = scratch_bytes] {
    const auto size = static_cast<size_t>(count);
    writes(device, static_cast<std::byte*>(scratch), bytes, "the scratch memory of a sort");
    reads(device, keys_in, size, "a sort of keys");
    reads(device, values_in, size, "a sort of values");
    writes(device, keys_out, size, "a sort to keys");
    writes(device, values_out, size, "a sort to values");
    const uint32_t mask = end_bit >= 32 ? ~0u : (1u << end_bit) - 1;
    const auto digit = [&](uint32_t place) { return (keys_in[place] & mask) >> first_bit; };
    std::vector<uint32_t> order(size);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return digit(a) < digit(b); });
    for (size_t i = 0; i < size; ++i) {
      keys_out[i] = keys_in[order[i]];
      values_out[i] = values_in[order[i]];
    }
  });
  return cudaSuccess;
}

}  // namespace cub
