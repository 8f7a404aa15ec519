// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A PCI function driven from user space through /sys, where no kernel driver is bound to it.
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
/// ArgumentError if there is none, or it is no NVMe controller; std::runtime_error, with the next
/// step, if a driver is bound to it, or an IOMMU translates its memory accesses, so that physical
/// addresses would mean nothing to it. Changes nothing.
void check_drivable(const std::string& address, const std::string& sysfs = "/sys");

/// Drives an NVMe controller's PCI function, which then decodes its registers and is held
/// exclusively among the processes that use this class. It masters the bus between
/// start_mastering() and the destructor, which ends that first of all, and so does the constructor:
/// neither a drive that went astray nor one that a killed process left at work can write to memory
/// that is given back or taken.
class PciFunction {
 public:
  /// Throws as check_drivable() does, and SystemError where permission is lacking or another
  /// process holds the function.
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
