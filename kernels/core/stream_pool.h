// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Our own pool of GPU memory (cuda_memory.h), as code without CUDA sees it.
#pragma once

#include <cstdint>

namespace lsm {

/// Bytes of a device's pool.
struct StreamPoolBytes {
  int64_t reserved = 0;  // taken from the GPU
  int64_t used = 0;      // of these, allocated and not yet freed
};

/// Those of `device` now; zeros where it has no pool. Throws CudaError if CUDA does not say.
StreamPoolBytes stream_pool_bytes(int device);
/// Returns idle memory of the pool to the GPU, where torch can use it. Makes no pool.
void trim_memory(int device) noexcept;

}  // namespace lsm
