// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Transport `libnvm`: a controller held by the kernel module of the BaM project, which lets the
// controller reach host memory and the memory of a GPU.
#pragma once

#include <memory>
#include <string>

#include "kernels/io/nvme/transport/dma_arena.h"
#include "kernels/io/nvme/transport/libnvm_module.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

class LibnvmMappings;

class LibnvmTransport final : public Transport {
 public:
  /// Takes the controller behind `node` (open_libnvm_node()). Throws SystemError or
  /// std::runtime_error.
  explicit LibnvmTransport(std::unique_ptr<LibnvmNode> node);

  std::string name() const override { return name_; }
  uint32_t* registers() override { return registers_; }
  size_t register_bytes() const override { return register_bytes_; }
  DmaMemory allocate(size_t bytes, DmaShape shape) override;

  /// As Transport::map_gpu_memory(). Throws ArgumentError for a bad alignment; std::runtime_error
  /// if the module cannot map it, with a note if it lacks GPU support.
  DmaMemory map_gpu_memory(std::byte* data, size_t bytes) override;

 private:
  void map_registers();

  const std::string name_;
  const std::shared_ptr<LibnvmMappings> mappings_;
  const std::shared_ptr<DmaArena> arena_;
  uint32_t* registers_ = nullptr;
  size_t register_bytes_ = 0;
};

}  // namespace lsm::nvme
