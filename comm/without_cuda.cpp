// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/gpu_memory.h"
#include "kernels/core/check.h"

namespace lsm::comm {

std::unique_ptr<GpuMemory> make_gpu_memory(int) {
  throw_without_cuda("GPU memory that ranks share");
}

std::string peer_access_problem(int, const std::string&) {
  return "built without CUDA";
}

}  // namespace lsm::comm
