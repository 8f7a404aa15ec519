// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

/// Memory that a controller can reach. The last copy of `owner` frees it, and must outlive the
/// controller's use.
struct DmaMemory {
  std::byte* data = nullptr;
  size_t bytes = 0;             // a multiple of kPageBytes
  std::vector<uint64_t> pages;  // the controller's address of each kPageBytes of it
  std::shared_ptr<void> owner;

  /// The controller's address of byte `offset`.
  uint64_t address(size_t offset) const { return pages[offset / kPageBytes] + offset % kPageBytes; }
};

/// kContiguous: the pages of an allocation are adjacent at the controller's addresses.
enum class DmaShape { kPages, kContiguous };

/// Access to one controller's registers, and to memory that it can reach. Implemented by the
/// emulated controller, by a PCI function mapped from user space, and by the libnvm kernel module.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Name for messages: "emulated controller over a.bin", "0000:00:04.0".
  virtual std::string name() const = 0;

  /// The mapped BAR0, whose registers any thread reads and writes as aligned 32-bit words.
  virtual uint32_t* registers() = 0;
  virtual size_t register_bytes() const = 0;
  /// True if the registers are IO memory of a drive; false if they are plain memory. A GPU maps the
  /// two differently.
  virtual bool has_io_registers() const { return true; }

  /// Lets the controller reach memory. Called after its reset and before it is enabled, so that
  /// commands of a killed process reach nobody's memory.
  virtual void allow_dma() {}

  /// Zeroed, page-aligned memory of at least `bytes` bytes. Throws std::runtime_error, with the
  /// remedy, if there is none of this shape.
  virtual DmaMemory allocate(size_t bytes, DmaShape shape) = 0;

  /// Lets the controller reach `bytes` at `data` (both multiples of 64 KiB) in GPU memory. The
  /// caller owns the memory, which must outlive the result; `data` of the result is `data`. Throws
  /// std::runtime_error where the controller cannot reach a GPU.
  virtual DmaMemory map_gpu_memory(std::byte* data, size_t bytes);

 protected:
  Transport() = default;
};

}  // namespace lsm::nvme
