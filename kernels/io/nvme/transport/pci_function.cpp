// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/pci_function.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/core/check.h"

namespace lsm::nvme {
namespace {

namespace fs = std::filesystem;

constexpr unsigned long kNvmeClass = 0x010802;

// PCI configuration space (PCI local bus specification 3.0, 6.2.2).
constexpr size_t kCommandOffset = 4;
constexpr uint16_t kMemorySpace = 1u << 1;
constexpr uint16_t kBusMaster = 1u << 2;

fs::path devices(const std::string& sysfs) {
  return fs::path(sysfs) / "bus/pci/devices";
}

/// First line of a small file; empty if it cannot be read.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

unsigned long class_of(const fs::path& folder) {
  return std::strtoul(first_line(folder / "class").c_str(), nullptr, 16);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// Bytes of BAR0, from the first line of `resource`: first address, last address, flags.
size_t register_bytes(const fs::path& folder) {
  const std::string line = first_line(folder / "resource");
  char* end = nullptr;
  const unsigned long long first = std::strtoull(line.c_str(), &end, 16);
  const unsigned long long last = std::strtoull(end, nullptr, 16);
  if (last <= first) {
    throw std::runtime_error(concat(folder.filename().string(),
                                    ": the firmware gave its registers (BAR0) no address; look "
                                    "for PCI messages in dmesg"));
  }
  return static_cast<size_t>(last - first + 1);
}

/// Wakes the function up, as the probe of a driver would.
void wake(const fs::path& folder) {
  const FileHandle file((folder / "enable").string(), O_WRONLY);
  file.write("1", 1, 0);
}

}  // namespace

std::vector<std::string> find_controllers(const std::string& sysfs) {
  std::vector<std::string> addresses;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(devices(sysfs), error)) {
    if (class_of(entry.path()) == kNvmeClass) {
      addresses.push_back(entry.path().filename().string());
    }
  }
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

void check_drivable(const std::string& address, const std::string& sysfs) {
  const fs::path folder = devices(sysfs) / address;
  check_argument(!address.empty() && address.find('/') == std::string::npos && fs::exists(folder),
                 "storage.devices: no PCI function at ", address,
                 "; NVMe controllers here: ", joined(find_controllers(sysfs)));
  check_argument(class_of(folder) == kNvmeClass, "storage.devices: ", address,
                 " is no NVMe controller: expected PCI class 0x010802, got ",
                 first_line(folder / "class"));
  std::error_code error;
  const fs::path driver = fs::read_symlink(folder / "driver", error).filename();
  if (!error) {
    throw std::runtime_error(
        concat(address, " is in use by the kernel driver ", driver.string(),
               ": once nothing on it is needed (lsm doctor shows its use), as root: echo ", address,
               " > ", (folder / "driver/unbind").string()));
  }
  const std::string group = first_line(folder / "iommu_group/type");
  if (fs::exists(folder / "iommu_group") && group != "identity") {
    throw std::runtime_error(
        concat(address, " is behind an IOMMU, which translates its memory accesses (group type ",
               group, "); boot with iommu=pt, or switch the IOMMU off in the firmware"));
  }
}

PciFunction::PciFunction(const std::string& address, const std::string& sysfs)
    : address_((check_drivable(address, sysfs), address)),
      config_((devices(sysfs) / address / "config").string(), O_RDWR) {
  config_.lock();
  const fs::path folder = devices(sysfs) / address;
  const size_t bytes = register_bytes(folder);
  const FileHandle resource((folder / "resource0").string(), O_RDWR | O_SYNC);
  wake(folder);
  registers_ = FileMapping(resource, bytes);
  write_command((read_command() | kMemorySpace) & static_cast<uint16_t>(~kBusMaster));
}

void PciFunction::start_mastering() const {
  write_command(read_command() | kBusMaster);
}

PciFunction::~PciFunction() {
  try {
    write_command(read_command() & static_cast<uint16_t>(~kBusMaster));
  } catch (const SystemError&) {
    // The function has been removed, so it masters no bus.
  }
}

uint16_t PciFunction::read_command() const {
  uint16_t command = 0;
  config_.read(&command, sizeof command, kCommandOffset);
  return command;
}

void PciFunction::write_command(uint16_t command) const {
  config_.write(&command, sizeof command, kCommandOffset);
}

}  // namespace lsm::nvme
