// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Owners of memory that kernels access, on the device that is current at construction. Destructors
// choose that device themselves: a thread that never chose one has the first. For .cu files.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/core/cuda_check.h"

namespace lsm::nvme {

/// Registers host memory, so that the GPU can access it.
class MappedRange {
 public:
  MappedRange(void* memory, size_t bytes, unsigned flags, const std::string& what)
      : device_(current_device()), memory_(memory) {
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

/// `count` elements of GPU memory. They are zero for all later work in `stream`.
template <class T>
class GpuArray {
 public:
  GpuArray(size_t count, cudaStream_t stream) : device_(current_device()) {
    const std::string what = concat("allocate ", count * sizeof(T), " bytes of GPU memory");
    check_cuda(cudaMalloc(&data_, count * sizeof(T)), what.c_str());
    fill(cudaMemsetAsync(data_, 0, count * sizeof(T), stream));
  }
  GpuArray(const std::vector<T>& values, cudaStream_t stream)
      : GpuArray(std::max<size_t>(1, values.size()), stream) {
    const size_t bytes = values.size() * sizeof(T);
    check_cuda(cudaMemcpyAsync(data_, values.data(), bytes, cudaMemcpyHostToDevice, stream),
               "upload addresses");
  }
  ~GpuArray() {
    const OwnerEnd end(device_);
    cudaFree(data_);
  }
  GpuArray(const GpuArray&) = delete;
  GpuArray& operator=(const GpuArray&) = delete;

  T* get() const { return static_cast<T*>(data_); }

 private:
  void fill(cudaError_t error) {
    if (error == cudaSuccess) return;
    cudaFree(data_);
    check_cuda(error, "clear GPU memory");
  }

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
