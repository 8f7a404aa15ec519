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
/// where the kernel was told to leave locked pages in their places. `bytes`: a multiple of 2 MiB.
/// Throws std::runtime_error, with what to do, where there is neither, or where the addresses are
/// not shown to this process. `procfs` is where the kernel is asked.
DmaMemory allocate_locked_memory(size_t bytes, const std::string& procfs = "/proc");

}  // namespace lsm::nvme
