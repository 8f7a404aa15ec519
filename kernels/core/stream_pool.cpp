// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/stream_pool.h"

namespace lsm {

#if !LSM_HAS_CUDA
StreamPoolBytes stream_pool_bytes(int) {
  return {};
}

void trim_memory(int) noexcept {}
#endif

}  // namespace lsm
