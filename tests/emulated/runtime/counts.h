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

/// What the host asked for, and what crossed the bus (bench/gpu.py --count).
struct CallCounts {
  /// Kernels, with those of CUB as it has them.
  std::atomic<int64_t> launches{0};
  /// Points in a stream that the host found passed, and copies that it waited for.
  std::atomic<int64_t> waits{0};
  std::atomic<int64_t> to_gpu_bytes{0}, from_gpu_bytes{0};
  /// Of kernels, in page-locked memory; seen by the memory build.
  std::atomic<int64_t> far_bytes{0};
  /// Those of kernels that hold many SMs, or whose stream goes before training.
  std::atomic<int64_t> far_bytes_holding_sms{0};
  /// cudaMalloc, cudaFree and their like for host memory.
  std::atomic<int64_t> allocations{0};
  /// Loads and stores of the host's code, eight bytes of a range each; seen by the memory build.
  std::atomic<int64_t> host_accesses{0};
};

CallCounts& call_counts();

/// Counts a wait of this thread.
void count_wait();

}  // namespace emulated
