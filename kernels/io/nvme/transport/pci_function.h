// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A PCI function without a kernel driver, driven from user space through /sys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/io/nvme/transport/file_mapping.h"

namespace lsm::nvme {

/// Addresses of the NVMe controllers (class 010802) on the PCI bus, sorted.
std::vector<std::string> find_controllers(const std::string& sysfs = "/sys");

/// Throws unless the function at `address` ("0000:01:00.0") can be driven from user space:
/// ArgumentError if it does not exist or is no NVMe controller; std::runtime_error, with the next
/// step, if a driver is bound to it, or if an IOMMU translates its memory accesses, so that
/// physical addresses are meaningless to it. Changes nothing.
void check_drivable(const std::string& address, const std::string& sysfs = "/sys");

/// Drives an NVMe controller's PCI function, which then decodes its registers. Held exclusively
/// among processes that use this class. The function masters the bus only between start_mastering()
/// and the destructor. Constructor and destructor end bus mastering first, so that neither a stray
/// drive nor one that a killed process left at work can write to memory that is freed or newly
/// allocated.
class PciFunction {
 public:
  /// Throws as check_drivable() does, and SystemError without permission or if another process
  /// holds the function.
  explicit PciFunction(const std::string& address, const std::string& sysfs = "/sys");
  ~PciFunction();
  PciFunction(const PciFunction&) = delete;
  PciFunction& operator=(const PciFunction&) = delete;

  const std::string& address() const { return address_; }
  /// Lets the drive reach memory.
  void start_mastering() const;
  /// BAR0.
  const FileMapping& registers() const { return registers_; }

 private:
  uint16_t read_command() const;
  void write_command(uint16_t command) const;

  const std::string address_;
  const FileHandle config_;
  FileMapping registers_;
};

}  // namespace lsm::nvme
