// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GPU memory that is allocated and freed in the order of a stream. cudaMalloc() and cudaFree() wait
// for the whole GPU, including training; these functions wait for nothing. For .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/core/stream_pool.h"

namespace lsm {

/// `bytes` bytes of this device for later work in `stream`. Throws CudaError if there are none.
void* allocate_in_stream(int device, size_t bytes, cudaStream_t stream);
/// Frees it behind all work that is in `stream` now. Ignores null.
void free_in_stream(void* memory, cudaStream_t stream) noexcept;

}  // namespace lsm
