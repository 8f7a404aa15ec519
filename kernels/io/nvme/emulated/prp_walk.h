// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/io/nvme/emulated/block_source.h"
#include "kernels/io/nvme/emulated/dma_space.h"
#include "kernels/io/nvme/protocol/prp.h"

namespace lsm::nvme {

/// Finds the memory of a transfer of `bytes` bytes, as a controller does. Written from the
/// specification (NVMe 1.4, 4.3), independently of the code that builds PRPs. Returns a status, and
/// in `segments` the memory, with adjacent parts merged.
uint16_t walk_prps(const DmaSpace& space, const DataPointer& data, uint64_t bytes,
                   std::vector<Segment>& segments);

}  // namespace lsm::nvme
