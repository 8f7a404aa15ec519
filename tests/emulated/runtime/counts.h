// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// What kernels did, for tests that hold how much they may do.
#pragma once

#include <atomic>
#include <cstdint>

namespace emulated {

struct KernelCounts {
  std::atomic<const char*> kernel{nullptr};
  std::atomic<int64_t> launches{0};
  /// Reads of page-locked memory, which cross the bus and come back. Only the memory build sees
  /// them.
  std::atomic<int64_t> far_reads{0};
};

/// Of all launches of the kernel of this name so far.
KernelCounts& counts_of(const char* kernel);

}  // namespace emulated
