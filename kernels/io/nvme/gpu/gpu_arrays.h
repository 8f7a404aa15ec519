// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Owners of memory that kernels access, on the device that is current at construction. Destructors
// choose that device themselves: a thread that never chose one has the first. For .cu files.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/core/cuda_check.h"
#include "kernels/core/cuda_memory.h"

namespace lsm::nvme {

/// Registers host memory, so that the GPU can access it.
class MappedRange {
 public:
  MappedRange(void* memory, size_t bytes, unsigned flags, const std::string& what)
      : device_(current_device()), memory_(memory) {
    const RelaxedCapture relaxed;
    check_cuda(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | flags), what.c_str());
    const cudaError_t error = cudaHostGetDevicePointer(&on_device_, memory, 0);
    if (error == cudaSuccess) return;
    cudaHostUnregister(memory);
    check_cuda(error, what.c_str());
  }
  ~MappedRange() {
    const OwnerEnd end(device_);
    cudaHostUnregister(memory_);
  }
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  /// The GPU's address of `pointer`, which points into the range.
  template <class T>
  T* on_device(T* pointer) const {
    const auto offset = reinterpret_cast<std::byte*>(pointer) - static_cast<std::byte*>(memory_);
    return reinterpret_cast<T*>(static_cast<std::byte*>(on_device_) + offset);
  }

 private:
  const int device_;
  void* const memory_;
  void* on_device_ = nullptr;
};

/// `count` elements of GPU memory, allocated and freed in the order of `stream`, which outlives
/// them. They are zero for all later work there.
template <class T>
class GpuArray {
 public:
  GpuArray(size_t count, cudaStream_t stream)
      : device_(current_device()),
        stream_(stream),
        data_(allocate_in_stream(device_, count * sizeof(T), stream)) {
    const cudaError_t error = cudaMemsetAsync(data_, 0, count * sizeof(T), stream);
    if (error == cudaSuccess) return;
    free_in_stream(data_, stream_);
    check_cuda(error, "clear GPU memory");
  }
  GpuArray(const std::vector<T>& values, cudaStream_t stream)
      : GpuArray(std::max<size_t>(1, values.size()), stream) {
    const size_t bytes = values.size() * sizeof(T);
    check_cuda(cudaMemcpyAsync(data_, values.data(), bytes, cudaMemcpyHostToDevice, stream),
               "upload addresses");
  }
  ~GpuArray() {
    const OwnerEnd end(device_);
    free_in_stream(data_, stream_);
  }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;

  T* get() const { return static_cast<T*>(data_); }

 private:
  const int device_;
  const cudaStream_t stream_;
  void* const data_;
};

/// GPU memory that a driver can map for a drive, which it cannot do with a pool's. To allocate and
/// to free it waits for the whole GPU.
class MappableMemory {
 public:
  explicit MappableMemory(size_t bytes) : device_(current_device()) {
    const RelaxedCapture relaxed;
    const std::string what = concat("allocate ", bytes, " bytes of GPU memory");
    check_cuda(cudaMalloc(&data_, bytes), what.c_str());
  }
  ~MappableMemory() {
    const OwnerEnd end(device_);
    cudaFree(data_);
  }
  MappableMemory(const MappableMemory&) = delete;
  MappableMemory& operator=(const MappableMemory&) = delete;

  std::byte* get() const { return static_cast<std::byte*>(data_); }

 private:
  const int device_;
  void* data_ = nullptr;
};

/// `count` elements of page-locked memory, all zero.
template <class T>
class PinnedArray {
 public:
  explicit PinnedArray(size_t count) : block_(count * sizeof(T)) {
    std::memset(block_.data(), 0, block_.size());
  }
  T* get() const { return reinterpret_cast<T*>(block_.data()); }
  T& operator[](size_t index) const { return get()[index]; }

 private:
  PinnedBlock block_;
};

}  // namespace lsm::nvme
