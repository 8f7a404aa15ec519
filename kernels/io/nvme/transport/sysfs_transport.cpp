// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/sysfs_transport.h"

#include "kernels/io/nvme/transport/locked_memory.h"

namespace lsm::nvme {

SysfsTransport::SysfsTransport(const std::string& address)
    : arena_(DmaArena::create([](size_t bytes) { return allocate_locked_memory(bytes); })),
      function_(address) {}

uint32_t* SysfsTransport::registers() {
  return reinterpret_cast<uint32_t*>(function_.registers().data());
}

DmaMemory SysfsTransport::allocate(size_t bytes, DmaShape shape) {
  return arena_->allocate(bytes, shape);
}

}  // namespace lsm::nvme
