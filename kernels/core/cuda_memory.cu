// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/cuda_memory.h"

#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/core/cuda_check.h"

namespace lsm {
namespace {

/// A pool of our own, because the device's default one may have other users with other settings.
/// It keeps what is freed: giving memory back to the driver, and asking again, takes as long as
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

/// Lives as long as the process: memory may be freed in a stream that lives as long.
cudaMemPool_t pool_of(int device) {
  static std::mutex mutex;
  static std::map<int, cudaMemPool_t>* const pools = new std::map<int, cudaMemPool_t>;
  const std::lock_guard lock(mutex);
  const auto known = pools->find(device);
  if (known != pools->end()) return known->second;
  return pools->emplace(device, make_pool(device)).first->second;
}

}  // namespace

void* allocate_in_stream(int device, size_t bytes, cudaStream_t stream) {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  const std::string what = concat("allocate ", bytes, " bytes of GPU memory");
  check_cuda(cudaMallocFromPoolAsync(&memory, bytes, pool_of(device), stream), what.c_str());
  return memory;
}

void free_in_stream(void* memory, cudaStream_t stream) noexcept {
  const RelaxedCapture relaxed;
  if (memory != nullptr) cudaFreeAsync(memory, stream);
}

void trim_memory(int device) noexcept {
  const RelaxedCapture relaxed;
  try {
    cudaMemPoolTrimTo(pool_of(device), 0);
  } catch (const CudaError&) {
    // No pool was made, so no memory is in it.
  }
}

}  // namespace lsm
