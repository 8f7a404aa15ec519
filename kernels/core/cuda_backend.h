// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The Backend (host_backend.h) that is a GPU: one stream of its own, in which everything happens in
// the order of the calls. For .cu files.
#pragma once

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/cuda_check.h"
#include "kernels/core/cuda_launch.h"
#include "kernels/core/cuda_memory.h"
#include "kernels/core/transfer_memory.h"

namespace lsm {
class CudaBackend {
 public:
  using Warp = GpuWarp;

  /// Every wait takes at most `timeout_secs`.
  CudaBackend(int device, double timeout_secs, GpuShare share = GpuShare::kWhole)
      : device_(device),
        timeout_secs_(timeout_secs),
        share_(share),
        stream_(device, share),
        done_(device) {}
  ~CudaBackend() {
    drain();
    trim_memory(device_);
  }
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  /// A thread calls this before the functions below: each thread has a device of its own.
  void enter() const { use_device(device_); }

  cudaStream_t stream() const { return stream_.get(); }
  intptr_t stream_number() const { return reinterpret_cast<intptr_t>(stream()); }

  /// For later calls; memory is freed behind earlier calls. So arrays grow without a wait.
  void* allocate(size_t bytes) { return allocate_in_stream(device_, bytes, stream()); }
  void release(void* memory) { free_in_stream(memory, stream()); }
  void* allocate_pinned(size_t bytes) {
    pinned_.push_back(std::make_unique<PinnedBlock>(bytes));
    return pinned_.back()->data();
  }
  void release_pinned(void* memory) {
    std::erase_if(pinned_, [&](const auto& block) { return block->data() == memory; });
  }

  /// Through page-locked memory, which is used again after the next synchronize().
  void upload(void* target, const void* host, size_t bytes) {
    auto* to = static_cast<std::byte*>(target);
    const auto* from = static_cast<const std::byte*>(host);
    for (; bytes > Transfers::kMaxTaken; bytes -= Transfers::kMaxTaken) {
      upload_part(to, from, Transfers::kMaxTaken);
      synchronize();
      to += Transfers::kMaxTaken;
      from += Transfers::kMaxTaken;
    }
    if (bytes > 0) upload_part(to, from, bytes);
  }
  void download(void* host, const void* source, size_t bytes) {
    if (bytes == 0) return;
    try {
      std::byte* staged = take(bytes);
      check_cuda(cudaMemcpyAsync(staged, source, bytes, cudaMemcpyDeviceToHost, stream()),
                 "download");
      downloads_.push_back({host, staged, bytes});
    } catch (...) {
      downloads_.clear();  // whoever asked for these may be gone at the next synchronize()
      throw;
    }
  }
  void copy(void* target, const void* source, size_t bytes) {
    if (bytes == 0) return;
    check_cuda(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream()), "copy");
  }
  void fill(void* target, int byte, size_t bytes) {
    if (bytes == 0) return;
    check_cuda(cudaMemsetAsync(target, byte, bytes, stream()), "fill");
  }

  template <class F>
  void for_each(int64_t count, const F& f) {
    CudaLauncher(stream(), share_).for_each(count, f);
  }
  template <class F>
  void for_each_warp(int64_t count, const F& f) {
    CudaLauncher(stream(), share_).for_each_warp(count, f);
  }

  void sort_pairs(const uint32_t* keys_in, uint32_t* keys_out, const uint32_t* values_in,
                  uint32_t* values_out, int64_t count, int bits) {
    with_scratch("sort", [&](void* scratch, size_t& bytes) {
      return cub::DeviceRadixSort::SortPairs(scratch, bytes, keys_in, keys_out, values_in,
                                             values_out, num_items(count), 0, bits, stream());
    });
  }

  struct Event : CudaEvent {
    explicit Event(const CudaBackend& backend) : CudaEvent(backend.device_) {}
  };
  void record(Event& event) { event.CudaEvent::record(stream()); }
  void block(const Event& event) { event.CudaEvent::block(stream()); }
  void wait(const Event& event, const char* what) { event.CudaEvent::wait(timeout_secs_, what); }

  /// Returns when all of the above is done, and downloads have arrived.
  void synchronize() {
    // Whoever asked for these may be gone when a later call succeeds after this one has failed.
    const std::vector<Download> downloads = std::exchange(downloads_, {});
    done_.record(stream());
    done_.wait(timeout_secs_, "work in a stream of its own");
    for (const Download& download : downloads) {
      std::memcpy(download.host, download.staged, download.bytes);
    }
    transfers_.take_back();
  }
  /// Before memory goes: nothing may use it any more. An error here was reported, or will be. The
  /// thread may be one that never chose a device, and would free on the first.
  void drain() noexcept {
    const OwnerEnd end(device_);
    free_in_stream(std::exchange(scratch_, nullptr), stream());
    cudaStreamSynchronize(stream());
  }

 private:
  struct Download {
    void* host;
    const std::byte* staged;
    size_t bytes;
  };
  using Transfers = TransferMemory<PinnedBlock>;

  static int num_items(int64_t count) {
    check_argument(count <= INT32_MAX, "at most 2^31 - 1 items at a time on a GPU, got ", count);
    return static_cast<int>(count);
  }

  void upload_part(std::byte* target, const std::byte* host, size_t bytes) {
    std::byte* staged = take(bytes);
    std::memcpy(staged, host, bytes);
    check_cuda(cudaMemcpyAsync(target, staged, bytes, cudaMemcpyHostToDevice, stream()), "upload");
  }

  std::byte* take(size_t bytes) {
    if (transfers_.is_crowded(bytes)) synchronize();
    return transfers_.take(bytes);
  }

  /// Calls a CUB algorithm, which says first how much scratch memory it needs.
  template <class Algorithm>
  void with_scratch(const char* what, const Algorithm& algorithm) {
    size_t bytes = 0;
    check_cuda(algorithm(nullptr, bytes), what);
    if (bytes > scratch_bytes_ || scratch_ == nullptr) {
      release(std::exchange(scratch_, nullptr));
      scratch_bytes_ = bytes + bytes / 4 + 256;
      scratch_ = allocate(scratch_bytes_);
    }
    check_cuda(algorithm(scratch_, bytes), what);
  }

  const int device_;
  const double timeout_secs_;
  const GpuShare share_;
  CudaStream stream_;
  CudaEvent done_;
  Transfers transfers_;
  std::vector<std::unique_ptr<PinnedBlock>> pinned_;
  std::vector<Download> downloads_;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
};

}  // namespace lsm
