// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/cuda_info.h"

namespace lsm {

#if !LSM_HAS_CUDA
CudaInfo find_cuda() {
  CudaInfo info;
  info.problem = "built without CUDA";
  return info;
}
#endif

}  // namespace lsm
