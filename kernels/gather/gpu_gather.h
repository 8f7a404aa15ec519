// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A gather on a GPU, as a cache's look-ups do it, and as they would with a lock on every line: to
// measure what plans without locks save (LSM-GNN, figure 5).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lsm {

/// What a look-up does about other threads before and after it copies a line.
enum class LineLocks : uint8_t {
  kNone,    // nothing: the plan says that nobody evicts it
  kDevice,  // takes and gives back a reference, at the scope of the GPU
  kSystem,  // the same at the scope of the system, as caches do that other GPUs or the host read
};

/// Row ids[i] of `source` goes to row i of `out`; all of it is memory of the device, or
/// page-locked.
struct GpuGather {
  const std::byte* source;
  const int64_t* ids;  // [count], checked
  std::byte* out;
  uint32_t* references;  // by row of source, 0; null with kNone
  int64_t count;
  int64_t row_bytes;
};

/// Queues it to `stream` (a cudaStream_t as a number) of GPU `device`. Throws std::runtime_error
/// where this was built without CUDA.
void gather_on_gpu(const GpuGather& gather, LineLocks locks, int device, intptr_t stream);
/// The same by a host loop.
void gather_by_twin(const GpuGather& gather, LineLocks locks);

}  // namespace lsm
