// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GPU memory that comes and goes in the order of a stream. cudaMalloc() and cudaFree() wait for all
// of the GPU, training included; these wait for nothing. For .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lsm {

/// `bytes` bytes for what comes later in `stream`, of this device. Throws CudaError if there are
/// none.
void* allocate_in_stream(int device, size_t bytes, cudaStream_t stream);
/// Gives it back behind everything that is in `stream` now. Null is nothing.
void free_in_stream(void* memory, cudaStream_t stream) noexcept;
/// Gives idle memory back to the GPU, where torch can have it.
void trim_memory(int device) noexcept;

}  // namespace lsm
