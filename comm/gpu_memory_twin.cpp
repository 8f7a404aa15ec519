// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/gpu_memory.h"

#include <unistd.h>

#include "comm/shared_memory.h"

namespace lsm::comm {
namespace {

class TwinBlock final : public ExportedBlock {
 public:
  explicit TwinBlock(size_t bytes) : block_(bytes) {}

  std::byte* data() const override { return block_.data(); }
  size_t size() const override { return block_.capacity(); }
  BlockHandle handle() const override { return {getpid(), block_.descriptor()}; }

 private:
  SharedBlock block_;
};

class TwinMapping final : public MappedBlock {
 public:
  TwinMapping(const BlockHandle& handle, size_t bytes)
      : block_(handle[0], static_cast<int>(handle[1]), bytes) {}

  std::byte* data() const override { return block_.data(); }
  size_t size() const override { return block_.size(); }

 private:
  PeerBlock block_;
};

class NoFence final : public Fence {
 public:
  bool passed() override { return true; }
};

class TwinMemory final : public GpuMemory {
 public:
  int device() const override { return -1; }
  std::unique_ptr<ExportedBlock> allocate(size_t bytes) override {
    return std::make_unique<TwinBlock>(bytes);
  }
  std::unique_ptr<MappedBlock> map(const BlockHandle& handle, size_t bytes) override {
    return std::make_unique<TwinMapping>(handle, bytes);
  }
  std::unique_ptr<Fence> fence() override { return std::make_unique<NoFence>(); }
};

}  // namespace

std::unique_ptr<GpuMemory> make_twin_memory() {
  return std::make_unique<TwinMemory>();
}

}  // namespace lsm::comm
