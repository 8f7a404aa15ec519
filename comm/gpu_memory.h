// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GPU memory that other processes of this machine can map, so that an owner's kernel writes rows
// straight into a requester's batch. Its twin is shared host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lsm::comm {

/// The handle with which another process maps a block: on a GPU a cudaIpcMemHandle_t.
using BlockHandle = std::array<int64_t, 8>;

/// Memory of this process that its peers can map. It should outlive their mappings, which CUDA
/// leaves undefined afterwards.
class ExportedBlock {
 public:
  virtual ~ExportedBlock() = default;
  ExportedBlock(const ExportedBlock&) = delete;
  ExportedBlock& operator=(const ExportedBlock&) = delete;

  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
  virtual BlockHandle handle() const = 0;

 protected:
  ExportedBlock() = default;
};

/// An ExportedBlock of another process, mapped for as long as this lives.
class MappedBlock {
 public:
  virtual ~MappedBlock() = default;
  MappedBlock(const MappedBlock&) = delete;
  MappedBlock& operator=(const MappedBlock&) = delete;

  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;

 protected:
  MappedBlock() = default;
};

/// A point in a GPU's stream.
class Fence {
 public:
  virtual ~Fence() = default;
  /// True once all work queued before it has ended.
  virtual bool passed() = 0;
};

/// A GPU whose memory is exported and mapped.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;

  /// The GPU's number; negative: the twin.
  virtual int device() const = 0;
  /// At least `bytes` bytes, not initialised.
  virtual std::unique_ptr<ExportedBlock> allocate(size_t bytes) = 0;
  /// Maps a block of `bytes` bytes of another process. Throws an error with the reason if it
  /// cannot.
  virtual std::unique_ptr<MappedBlock> map(const BlockHandle& handle, size_t bytes) = 0;
  /// A fence behind the work queued so far to the GPU's default stream, which uses batches.
  virtual std::unique_ptr<Fence> fence() = 0;
};

std::unique_ptr<GpuMemory> make_twin_memory();
/// Memory of GPU `device`. Throws std::runtime_error in a build without CUDA.
std::unique_ptr<GpuMemory> make_gpu_memory(int device);

/// The reason why GPU `device` cannot write to the memory of the GPU at `bus_id` (a PCI address as
/// CUDA writes it); empty if it can.
std::string peer_access_problem(int device, const std::string& bus_id);

}  // namespace lsm::comm
