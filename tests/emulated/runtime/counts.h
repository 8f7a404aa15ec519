// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Counts of the work of kernels, for tests that bound it.
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

/// The calls of the host, and the bytes over the bus (bench/gpu.py --count).
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

/// The accesses of the warps of launches, while they are counted; the stacks of lanes, which stand
/// for registers, and parameters are left out. Only the memory build sees it.
struct WarpTraffic {
  /// Loads and stores of the lane that had most of them in its warp: instructions, where lanes go
  /// the same way.
  std::atomic<int64_t> instructions{0};
  /// Pieces of 32 bytes that a warp touched, each once, read or written.
  std::atomic<int64_t> sectors{0};
};

inline constexpr size_t kSectorBytes = 32;

WarpTraffic& warp_traffic();
/// Launches that begin from now on are counted, or are not. Counting takes time.
void count_traffic(bool is_on);
bool counts_traffic();

/// Counts a wait of this thread.
void count_wait();

}  // namespace emulated
