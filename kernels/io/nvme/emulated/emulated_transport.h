// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels/io/nvme/emulated/emulated_controller.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// A controller that is a thread of this process.
class EmulatedTransport final : public Transport {
 public:
  EmulatedTransport(std::string name, const DeviceOptions& options,
                    std::vector<EmulatedNamespace> namespaces)
      : name_(std::move(name)), device_(options, std::move(namespaces)) {}

  std::string name() const override { return name_; }
  uint32_t* registers() override { return device_.registers(); }
  size_t register_bytes() const override { return device_.register_bytes(); }
  bool has_device_registers() const override { return false; }
  DmaMemory allocate(size_t bytes, DmaShape shape) override {
    return device_.memory().allocate(bytes, shape);
  }

  /// Lets the controller reach whole pages of the caller's, which must outlive what this returns:
  /// also a GPU's memory, if the namespaces' sources know how to write there.
  DmaMemory map(std::byte* data, size_t bytes) {
    return device_.memory().map(data, bytes, DmaShape::kPages);
  }

  const EmulatedDevice& device() const { return device_; }

 private:
  const std::string name_;
  EmulatedDevice device_;
};

}  // namespace lsm::nvme
