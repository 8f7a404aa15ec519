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
  EmulatedTransport(std::string name, const ControllerOptions& options,
                    std::vector<EmulatedNamespace> namespaces)
      : name_(std::move(name)), controller_(options, std::move(namespaces)) {}

  std::string name() const override { return name_; }
  uint32_t* registers() override { return controller_.registers(); }
  size_t register_bytes() const override { return controller_.register_bytes(); }
  bool has_io_registers() const override { return false; }
  DmaMemory allocate(size_t bytes, DmaShape shape) override {
    return controller_.memory().allocate(bytes, shape);
  }

  /// Lets the controller reach whole pages of the caller's, which must outlive the result. GPU
  /// memory works, too, if the namespaces' sources can write there.
  DmaMemory map(std::byte* data, size_t bytes) {
    return controller_.memory().map(data, bytes, DmaShape::kPages);
  }

  /// Precondition: the namespaces' sources can write there.
  DmaMemory map_gpu_memory(std::byte* data, size_t bytes) override { return map(data, bytes); }

  const EmulatedController& controller() const { return controller_; }

 private:
  const std::string name_;
  EmulatedController controller_;
};

}  // namespace lsm::nvme
