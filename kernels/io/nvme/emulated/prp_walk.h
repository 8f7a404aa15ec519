// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/io/nvme/emulated/block_source.h"
#include "kernels/io/nvme/emulated/dma_space.h"
#include "kernels/io/nvme/protocol/prp.h"

namespace lsm::nvme {

/// Finds the memory that `bytes` bytes go to, as a controller does: written from the specification
/// (NVMe 1.4, 4.3), apart from the code that builds PRPs. Returns a status; the memory is in
/// `segments`, neighbours merged.
uint16_t walk_prps(const DmaSpace& space, const DataPointer& data, uint64_t bytes,
                   std::vector<Segment>& segments);

}  // namespace lsm::nvme
