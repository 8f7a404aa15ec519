// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/cuda_check.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace lsm {
namespace {

const char* remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "; make cache.bytes, loader.staging_bytes or train.batch_size smaller; of "
             "page-locked memory, cache.victim.bytes, cache.constant.bytes or "
             "loader.staging_bytes, or raise `ulimit -l` and the container's limits";
    case cudaErrorInsufficientDriver:
      return "; the driver is older than the CUDA toolkit of this build: update it, or build with "
             "an older toolkit (`lsm doctor`)";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return "; see `nvidia-smi` and CUDA_VISIBLE_DEVICES, or set device=cpu";
    case cudaErrorNoKernelImageForDevice:
      return "; this build has no code for that GPU: build again with "
             "CMAKE_CUDA_ARCHITECTURES=native (compute capability 8.0 or newer is needed)";
    case cudaErrorUnsupportedPtxVersion:
      return "; this build has no machine code for that GPU, and the driver is too old to compile "
             "it: update the driver, or build again with CMAKE_CUDA_ARCHITECTURES=native";
    default:
      return "";
  }
}

}  // namespace

CudaError::CudaError(cudaError_t error, const std::string& what)
    : std::runtime_error(concat("CUDA: ", what, ": ", cudaGetErrorName(error), " (",
                                cudaGetErrorString(error), ")", remedy(error))),
      code(error) {
  // Clears the thread's last error too: a later call of other code would report it.
  cudaGetLastError();
}

void use_device(int device) {
  // Also if cudaGetDevice() returns this device: torch has a CUDA runtime of its own, so that the
  // answer of this one may be out of date.
  check_cuda(cudaSetDevice(device), "choose the device");
}

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "ask for the device");
  return device;
}

CudaEvent::CudaEvent(int device) {
  const RelaxedCapture relaxed;
  use_device(device);
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "create an event");
}

CudaEvent::~CudaEvent() {
  const OwnerEnd end;
  cudaEventDestroy(event_);
}

bool CudaEvent::done(const char* what) const {
  const RelaxedCapture relaxed;
  const cudaError_t state = cudaEventQuery(event_);
  if (state != cudaSuccess && state != cudaErrorNotReady) throw CudaError(state, what);
  return state == cudaSuccess;
}

void CudaEvent::wait(double timeout_secs, const char* what) const {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    if (done(what)) return;
    const std::chrono::duration<double> waited = Clock::now() - start;
    if (waited.count() > timeout_secs) {
      throw TimeoutError(concat("the GPU did not finish within ", timeout_secs, " s: ", what));
    }
    // Polls at first, because most waits are shorter than a sleep; then sleeps, to leave the core
    // free.
    if (waited.count() < 200e-6) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

CudaStream::CudaStream(int device, GpuShare share) {
  const RelaxedCapture relaxed;
  use_device(device);
  // The lower the number, the higher the priority.
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "ask for priorities of streams");
  const int priority = share == GpuShare::kFar ? lowest : std::max(highest, lowest - 1);
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority),
             "create a stream");
}

CudaStream::~CudaStream() {
  const OwnerEnd end;
  cudaStreamDestroy(stream_);
}

PinnedBlock::PinnedBlock(size_t bytes) : bytes_(bytes) {
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  const unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
  const std::string what = concat("allocate ", bytes, " bytes of page-locked host memory");
  check_cuda(cudaHostAlloc(&memory, bytes > 0 ? bytes : 1, flags), what.c_str());
  data_ = static_cast<std::byte*>(memory);
}

PinnedBlock::~PinnedBlock() {
  const OwnerEnd end;
  cudaFreeHost(data_);
}

}  // namespace lsm
