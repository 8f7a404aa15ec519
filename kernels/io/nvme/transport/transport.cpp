// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/transport.h"

#include <stdexcept>

#include "kernels/core/check.h"

namespace lsm::nvme {

DmaMemory Transport::map_gpu_memory(std::byte*, size_t) {
  throw std::runtime_error(concat(name(),
                                  ": this transport lets no drive reach a GPU; set "
                                  "storage.read_to=host, or storage.transport=libnvm"));
}

}  // namespace lsm::nvme
