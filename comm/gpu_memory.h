// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that other processes of this machine can map, so that an owner's kernel writes
// rows straight into a requester's batch; and its twin, which is shared host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lsm::comm {

/// What another process needs to map a block: on a GPU a cudaIpcMemHandle_t.
using BlockHandle = std::array<int64_t, 8>;

/// Memory of this process that its peers can map. It should outlive their mappings: CUDA does not
/// say what they are afterwards.
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

/// A point in what is queued to a GPU.
class Fence {
 public:
  virtual ~Fence() = default;
  /// Whether everything before it has happened.
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
  /// A block of `bytes` bytes of another process. Throws what says why it cannot be had.
  virtual std::unique_ptr<MappedBlock> map(const BlockHandle& handle, size_t bytes) = 0;
  /// Behind what is queued so far to the GPU's default stream, in which batches are used.
  virtual std::unique_ptr<Fence> fence() = 0;
};

std::unique_ptr<GpuMemory> make_twin_memory();
/// Of GPU `device`. Throws std::runtime_error where this was built without CUDA.
std::unique_ptr<GpuMemory> make_gpu_memory(int device);

/// Why GPU `device` cannot write to the memory of the GPU at `bus_id` (as CUDA writes PCI
/// addresses); empty if it can.
std::string peer_access_problem(int device, const std::string& bus_id);

}  // namespace lsm::comm
