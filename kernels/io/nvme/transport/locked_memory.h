// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Zeroed memory at a multiple of 2 MiB that stays with this process across a fork, from huge pages
/// if some are free. Its owner unmaps it; its pages are not filled in. Throws std::runtime_error.
struct HostPages {
  DmaMemory memory;
  bool huge = false;
};
HostPages map_host_pages(size_t bytes);

/// Memory that never moves, with the physical addresses of its pages: huge pages, or locked pages
/// if the kernel is set not to move these. `bytes`: a multiple of 2 MiB. Throws std::runtime_error,
/// with the remedy, if there is neither, or if the kernel hides the addresses from this process.
/// `procfs`: the folder of the kernel's settings.
DmaMemory allocate_locked_memory(size_t bytes, const std::string& procfs = "/proc");

}  // namespace lsm::nvme
