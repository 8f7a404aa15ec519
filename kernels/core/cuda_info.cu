// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/cuda_info.h"

#include <cuda_runtime_api.h>

namespace lsm {

bool has_cuda() {
  return true;
}

CudaInfo find_cuda() {
  CudaInfo info;
  info.toolkit_version = CUDART_VERSION;
  // Without a driver the call returns success and version 0.
  if (cudaDriverGetVersion(&info.driver_version) != cudaSuccess) info.driver_version = 0;
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  for (int i = 0; error == cudaSuccess && i < count; ++i) {
    cudaDeviceProp properties;
    char bus_id[32] = "";
    error = cudaGetDeviceProperties(&properties, i);
    if (error == cudaSuccess) error = cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, i);
    if (error != cudaSuccess) break;
    info.gpus.push_back({properties.name, properties.major, properties.minor,
                         static_cast<int64_t>(properties.totalGlobalMem), bus_id});
  }
  if (error != cudaSuccess) {
    info.problem = cudaGetErrorString(error);
    info.gpus.clear();
    cudaGetLastError();  // a later call would report it
  } else if (count == 0) {
    info.problem = "no CUDA-capable device is detected";
  }
  return info;
}

}  // namespace lsm
