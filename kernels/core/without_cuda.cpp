// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "kernels/core/cuda_info.h"
#include "kernels/core/page_lock.h"
#include "kernels/core/stream_pool.h"

namespace lsm {

bool has_cuda() {
  return false;
}

CudaInfo find_cuda() {
  CudaInfo info;
  info.problem = "built without CUDA";
  return info;
}

PageLock::PageLock(std::byte* memory, size_t, int device) : memory_(memory), device_(device) {
  throw std::runtime_error("this build has no CUDA: it page-locks no memory");
}

PageLock::~PageLock() {
  static_cast<void>(memory_);
  static_cast<void>(device_);
}

StreamPoolBytes stream_pool_bytes(int) {
  return {};
}

void trim_memory(int) noexcept {}

}  // namespace lsm
