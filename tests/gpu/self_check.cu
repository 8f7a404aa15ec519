// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/self_check.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace lsm::testing {
namespace {

constexpr int kCount = 1 << 20;
constexpr int kThreads = 256;

__global__ void fill(uint32_t* numbers) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  numbers[i] = 3 * i + 1;
}

/// Prints what failed, and how; whether it did.
bool failed(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return false;
  std::printf("the GPU does not work: %s: %s (%s)\n", what, cudaGetErrorString(error),
              cudaGetErrorName(error));
  return true;
}

bool describe() {
  cudaDeviceProp gpu{};
  int driver = 0;
  if (failed(cudaGetDeviceProperties(&gpu, 0), "ask for its properties") ||
      failed(cudaDriverGetVersion(&driver), "ask for the driver's version")) {
    return false;
  }
  std::printf(
      "GPU: %s, compute capability %d.%d, %.1f GiB, %d SMs, %.0f MiB of L2; driver for CUDA %d.%d, "
      "built with %d.%d\n",
      gpu.name, gpu.major, gpu.minor, static_cast<double>(gpu.totalGlobalMem) / (1 << 30),
      gpu.multiProcessorCount, gpu.l2CacheSize / 1048576.0, driver / 1000, driver % 1000 / 10,
      CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return true;
}

}  // namespace

int check_gpu() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorNoDevice || found == cudaErrorInsufficientDriver || count == 0) {
    std::printf("no GPU: %s; nothing was run\n", cudaGetErrorString(found));
    return kNoGpu;
  }
  if (!describe()) return 1;
  uint32_t* numbers = nullptr;
  std::vector<uint32_t> got(kCount);
  if (failed(cudaMalloc(&numbers, kCount * sizeof(uint32_t)), "allocate 4 MiB")) return 1;
  fill<<<kCount / kThreads, kThreads>>>(numbers);
  if (failed(cudaGetLastError(), "launch a kernel") ||
      failed(cudaDeviceSynchronize(), "run a kernel") ||
      failed(cudaMemcpy(got.data(), numbers, kCount * sizeof(uint32_t), cudaMemcpyDeviceToHost),
             "copy back") ||
      failed(cudaFree(numbers), "free memory")) {
    return 1;
  }
  for (uint32_t i = 0; i < kCount; ++i) {
    if (got[i] == 3 * i + 1) continue;
    std::printf("the GPU does not work: a kernel wrote %u at %u, not %u\n", got[i], i, 3 * i + 1);
    return 1;
  }
  std::printf("it allocates, runs a kernel and copies back\n");
  return 0;
}

}  // namespace lsm::testing
