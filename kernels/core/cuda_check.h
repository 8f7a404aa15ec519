// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Owners of the CUDA runtime's objects, and the check of every call. For .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/core/check.h"

namespace lsm {

/// A CUDA call failed: the attempt, the runtime's words, and a remedy where one is known.
struct CudaError : std::runtime_error {
  CudaError(cudaError_t error, const std::string& what);
  cudaError_t code;
};

/// Throws CudaError naming `what` unless `error` is success.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw CudaError(error, what);
}

/// Makes `device` the current one of this thread, and leaves it so: to go back to another GPU would
/// make a context there, and take its memory.
void use_device(int device);
/// The device that use_device() made this thread's, or the first.
int current_device();

/// While one lives, this thread's calls do not spoil another thread's capture into a graph
/// (torch.cuda.graph()). Otherwise calls that allocate, free or ask for an event are refused while
/// there is a capture anywhere in the process, and end it with an error. Our work never depends on
/// captured work: our streams take no part in captures.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// For destructors: calls that follow are made on the owner's device, which the thread may never
/// have chosen, and while somebody captures a graph. Nobody is told of their errors, who used the
/// GPU was or will be; nor does a later check of a launch find one.
class OwnerEnd {
 public:
  OwnerEnd() = default;
  explicit OwnerEnd(int device) { cudaSetDevice(device); }
  ~OwnerEnd() { cudaGetLastError(); }
  OwnerEnd(const OwnerEnd&) = delete;
  OwnerEnd& operator=(const OwnerEnd&) = delete;

 private:
  const RelaxedCapture relaxed_;
};

/// Owns an event without timing.
class CudaEvent {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "record event"); }
  /// Makes later work in `stream` wait for the recorded work.
  void block(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "wait for an event in a stream");
  }
  /// True once it has happened; throws CudaError naming `what` if the work before it failed.
  bool done(const char* what) const;
  /// Blocks the calling thread; throws TimeoutError naming `what`. An event that was never recorded
  /// has happened.
  void wait(double timeout_secs, const char* what) const;

 private:
  cudaEvent_t event_ = nullptr;
};

/// The share of a GPU that the kernels of a stream take. The only place that knows priorities.
enum class GpuShare : uint8_t {
  // For kernels that find their data in GPU memory and end soon; often someone waits for them. As
  // many blocks as there is work for, which go before those of streams of the lowest priority, as
  // torch's are by default.
  kWhole,
  // For kernels that wait for the bus. kFarBlocks blocks keep it busy, and leave the other SMs to
  // training meanwhile; and all others go before them.
  kFar,
};

/// Blocks of 256 threads, each with four 16-byte loads under way: 256 KiB in flight, where the
/// bus moves 50 to 100 KB in the time of a round trip.
inline constexpr int kFarBlocks = 16;

/// Owns a stream that does not wait for the legacy default stream.
class CudaStream {
 public:
  explicit CudaStream(int device, GpuShare share = GpuShare::kWhole);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns page-locked host memory that every GPU reads and writes at the same address.
class PinnedBlock {
 public:
  explicit PinnedBlock(size_t bytes);
  ~PinnedBlock();
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace lsm
