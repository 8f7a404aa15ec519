// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cub {

struct DeviceRadixSort {
  /// Asked for the size of its scratch memory, as CUB does, where `scratch` is null.
  static cudaError_t SortPairs(void* scratch, size_t& scratch_bytes, const uint32_t* keys_in,
                               uint32_t* keys_out, const uint32_t* values_in, uint32_t* values_out,
                               int count, int first_bit, int end_bit, cudaStream_t stream);
};

}  // namespace cub
