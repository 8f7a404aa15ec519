// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/page_lock.h"

#include <stdexcept>

namespace lsm {

#if !LSM_HAS_CUDA
PageLock::PageLock(std::byte* memory, size_t, int device) : memory_(memory), device_(device) {
  throw std::runtime_error("this build has no CUDA: it page-locks no memory");
}

PageLock::~PageLock() {
  static_cast<void>(memory_);
  static_cast<void>(device_);
}
#endif

}  // namespace lsm
