// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Reads that land in GPU memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/io/nvme/emulated/block_source.h"
#include "kernels/io/nvme/transport/transport.h"
#include "kernels/io/request.h"

namespace lsm::nvme {

/// Buffers of a GPU's memory that a drive writes to, and the way of rows from there to their
/// places. For one thread.
class GpuLanding {
 public:
  virtual ~GpuLanding() = default;
  GpuLanding(const GpuLanding&) = delete;
  GpuLanding& operator=(const GpuLanding&) = delete;

  /// Memory of the GPU that the controller behind `transport` reaches; the host must not touch it.
  virtual DmaMemory allocate(Transport& transport, size_t bytes) = 0;

  /// Copies pieces of reads that have completed: by a kernel to GPU memory, one by one to host
  /// memory. Throws TimeoutError. Blocks until they are there.
  virtual void copy(std::span<const PieceCopy> pieces) = 0;

  /// Writes `from`, which is in host memory, to memory of allocate()'s. Throws TimeoutError. Blocks
  /// until it is there.
  virtual void put(std::span<const std::byte> from, std::byte* to) = 0;
  /// Reads `to.size()` bytes that a completed read has left at `from` into host memory. Throws
  /// TimeoutError. Blocks.
  virtual void get(const std::byte* from, std::span<std::byte> to) = 0;

 protected:
  GpuLanding() = default;
};

/// `timeout_secs`: longest wait for a copy. Throws std::runtime_error without CUDA or this GPU.
std::unique_ptr<GpuLanding> make_gpu_landing(int device, double timeout_secs);

/// `source` for transfers to memory of GPU `device` and to host memory: reads go through
/// page-locked memory, from where the GPU fetches them. Throws as make_gpu_landing().
std::shared_ptr<BlockSource> make_gpu_blocks(std::shared_ptr<BlockSource> source, int device);

}  // namespace lsm::nvme
