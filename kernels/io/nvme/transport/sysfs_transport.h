// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Transport `sysfs`: a PCI function mapped from user space, and memory at physical addresses. For
// virtual machines and machines without an IOMMU. The host submits the reads.
#pragma once

#include <memory>
#include <string>

#include "kernels/io/nvme/transport/dma_arena.h"
#include "kernels/io/nvme/transport/pci_function.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

class SysfsTransport final : public Transport {
 public:
  /// Takes the controller at PCI `address` ("0000:01:00.0"). Throws as PciFunction does.
  explicit SysfsTransport(const std::string& address);

  std::string name() const override { return function_.address(); }
  uint32_t* registers() override;
  size_t register_bytes() const override { return function_.registers().size(); }
  void allow_dma() override { function_.start_mastering(); }
  DmaMemory allocate(size_t bytes, DmaShape shape) override;

 private:
  // The function is destroyed first, and with it the drive's access to the memory.
  const std::shared_ptr<DmaArena> arena_;
  const PciFunction function_;
};

}  // namespace lsm::nvme
