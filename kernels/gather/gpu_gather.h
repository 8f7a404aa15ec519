// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A gather on a GPU, as in a cache's look-ups, without locks and with a lock on every line:
// measures the savings of plans without locks (LSM-GNN, figure 5).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lsm {

/// The lock of a look-up around the copy of a line.
enum class LineLocks : uint8_t {
  kNone,    // none: the plan ensures that nobody evicts it
  kDevice,  // acquires and releases a reference at device scope
  kSystem,  // the same at system scope, as in caches that other GPUs or the host read
};

/// Copies row ids[i] of `source` to row i of `out`. All pointers are to memory of the device or
/// page-locked memory.
struct GpuGather {
  const std::byte* source;
  const int64_t* ids;  // [count], checked
  std::byte* out;
  uint32_t* references;  // by row of source, 0; null with kNone
  int64_t count;
  int64_t row_bytes;
};

/// Queues the gather to `stream` (a cudaStream_t as a number) of GPU `device`. Throws
/// std::runtime_error in a build without CUDA.
void gather_on_gpu(const GpuGather& gather, LineLocks locks, int device, intptr_t stream);
/// The same, by a loop on the host.
void gather_by_twin(const GpuGather& gather, LineLocks locks);

}  // namespace lsm
