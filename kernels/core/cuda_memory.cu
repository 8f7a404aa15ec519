// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/cuda_memory.h"

#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/core/cuda_check.h"

namespace lsm {
namespace {

/// A pool of our own, because the device's default one may have other users with other settings.
/// It keeps freed memory: giving memory back to the driver, and asking again, takes as long as
/// cudaMalloc().
cudaMemPool_t make_pool(int device) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t pool = nullptr;
  check_cuda(cudaMemPoolCreate(&pool, &properties), "make a pool of GPU memory");
  uint64_t kept_bytes = UINT64_MAX;
  const cudaError_t error =
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes);
  if (error == cudaSuccess) return pool;
  cudaMemPoolDestroy(pool);
  throw CudaError(error, "make a pool of GPU memory keep what is freed");
}

/// The pools of all devices. They live as long as the process: memory may be freed in a stream that
/// lives as long.
class Pools {
 public:
  static Pools& all() {
    static Pools* const pools = new Pools;
    return *pools;
  }

  /// Null if the device has none.
  cudaMemPool_t find(int device) {
    const std::lock_guard lock(mutex_);
    const auto known = pools_.find(device);
    return known == pools_.end() ? nullptr : known->second;
  }
  cudaMemPool_t get(int device) {
    const std::lock_guard lock(mutex_);
    const auto known = pools_.find(device);
    if (known != pools_.end()) return known->second;
    return pools_.emplace(device, make_pool(device)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, cudaMemPool_t> pools_;
};

int64_t bytes_of(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  uint64_t bytes = 0;
  check_cuda(cudaMemPoolGetAttribute(pool, attribute, &bytes), "ask a pool for its bytes");
  return static_cast<int64_t>(bytes);
}

}  // namespace

void* allocate_in_stream(int device, size_t bytes, cudaStream_t stream) {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  const std::string what = concat("allocate ", bytes, " bytes of GPU memory");
  check_cuda(cudaMallocFromPoolAsync(&memory, bytes, Pools::all().get(device), stream),
             what.c_str());
  return memory;
}

void free_in_stream(void* memory, cudaStream_t stream) noexcept {
  const RelaxedCapture relaxed;
  if (memory != nullptr) cudaFreeAsync(memory, stream);
}

void trim_memory(int device) noexcept {
  const RelaxedCapture relaxed;
  const cudaMemPool_t pool = Pools::all().find(device);
  if (pool != nullptr && cudaMemPoolTrimTo(pool, 0) != cudaSuccess) cudaGetLastError();
}

StreamPoolBytes stream_pool_bytes(int device) {
  const RelaxedCapture relaxed;
  const cudaMemPool_t pool = Pools::all().find(device);
  if (pool == nullptr) return {};
  return {bytes_of(pool, cudaMemPoolAttrReservedMemCurrent),
          bytes_of(pool, cudaMemPoolAttrUsedMemCurrent)};
}

}  // namespace lsm
