// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cub {

struct DeviceScan {
  /// Asked for the size of its scratch memory, as CUB does, where `scratch` is null.
  static cudaError_t InclusiveSum(void* scratch, size_t& scratch_bytes, const int64_t* values,
                                  int64_t* sums, int count, cudaStream_t stream);
};

}  // namespace cub
