// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/page_lock.h"

#include "kernels/core/cuda_check.h"

namespace lsm {

PageLock::PageLock(std::byte* memory, size_t bytes, int device) : memory_(memory), device_(device) {
  const RelaxedCapture relaxed;
  use_device(device);
  const unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  const std::string what = concat("page-lock ", bytes, " bytes of host memory");
  check_cuda(cudaHostRegister(memory, bytes, flags), what.c_str());
}

PageLock::~PageLock() {
  const OwnerEnd end(device_);
  cudaHostUnregister(memory_);
}

}  // namespace lsm
