// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

/// Memory that a controller can reach. The last copy of `owner` to go gives it back, so it must not
/// go before the controller has stopped using it.
struct DmaMemory {
  std::byte* data = nullptr;
  size_t bytes = 0;             // a multiple of kPageBytes
  std::vector<uint64_t> pages;  // the controller's address of each kPageBytes of it
  std::shared_ptr<void> owner;

  /// The controller's address of byte `offset`.
  uint64_t address(size_t offset) const { return pages[offset / kPageBytes] + offset % kPageBytes; }
};

/// Whether the pages of an allocation must follow each other as the controller sees them.
enum class DmaShape { kPages, kContiguous };

/// Gives one controller's registers and memory that it can reach. Implemented by the emulated
/// controller, by a PCI function mapped from user space, and by the libnvm kernel module.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// What it is, for messages: "emulated controller over a.bin", "0000:00:04.0".
  virtual std::string name() const = 0;

  /// The mapped BAR0: registers are read and written as aligned 32-bit words, in any thread.
  virtual uint32_t* registers() = 0;
  virtual size_t register_bytes() const = 0;
  /// True if the registers are IO memory of a drive; false if they are plain memory. A GPU maps the
  /// two differently.
  virtual bool has_io_registers() const { return true; }

  /// Lets the controller reach memory. Called once it has been reset, and before it is enabled:
  /// what a process that was killed left in its queues reaches nobody's memory.
  virtual void allow_dma() {}

  /// Zeroed, page-aligned memory of at least `bytes` bytes. Throws std::runtime_error, with what to
  /// do, if there is none of this shape.
  virtual DmaMemory allocate(size_t bytes, DmaShape shape) = 0;

 protected:
  Transport() = default;
};

}  // namespace lsm::nvme
