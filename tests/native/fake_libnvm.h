// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The kernel module libnvm without a kernel: answers its requests as its source does, with an
// emulated controller behind it. Kept next to what `make test-nvme LIBNVM_KO=...` shows of the real
// one.
#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/io/nvme/emulated/emulated_controller.h"
#include "kernels/io/nvme/transport/libnvm_module.h"

namespace lsm::testing {

/// State that outlives the device node: mappings stay until they are unmapped.
struct FakeModuleState {
  struct Mapping {
    std::thread::id owner;
    uint64_t start = 0;
    std::vector<nvme::DmaMemory> memory;  // which the controller reaches
  };

  bool gpu_support = true;
  size_t most_pages = SIZE_MAX;  // that can be pinned at once
  size_t register_bytes = 16 << 10;
  size_t mapped_register_bytes = 0;
  std::vector<Mapping> host;
  std::vector<Mapping> device;
};

class FakeLibnvmNode final : public nvme::LibnvmNode {
 public:
  FakeLibnvmNode(std::shared_ptr<FakeModuleState> state, const nvme::ControllerOptions& options,
                 std::vector<nvme::EmulatedNamespace> namespaces)
      : state_(std::move(state)), controller_(options, std::move(namespaces)) {}

  std::string path() const override { return "/dev/libnvm0"; }

  std::byte* map_registers(size_t bytes) override {
    if (bytes > state_->register_bytes) return nullptr;
    state_->mapped_register_bytes = bytes;
    return reinterpret_cast<std::byte*>(controller_.registers());
  }

  int request(unsigned long request, void* argument) override {
    if (request == nvme::kLibnvmMapHost) {
      return map(argument, nvme::kPageBytes, state_->host);
    }
    if (request == nvme::kLibnvmMapGpu && state_->gpu_support) {
      return map(argument, nvme::kGpuPageBytes, state_->device);
    }
    if (request != nvme::kLibnvmUnmap) return EINVAL;
    if (argument == nullptr) return EFAULT;
    const uint64_t start = *static_cast<uint64_t*>(argument);
    return unmap(start, state_->host) || unmap(start, state_->device) ? 0 : EINVAL;
  }

 private:
  int map(void* argument, size_t page_bytes, std::vector<FakeModuleState::Mapping>& list) {
    if (argument == nullptr) return EFAULT;
    const auto& wanted = *static_cast<nvme::LibnvmMapRequest*>(argument);
    if (wanted.num_pages < 1 || wanted.start % page_bytes != 0) return EINVAL;
    FakeModuleState::Mapping mapping{std::this_thread::get_id(), wanted.start, {}};
    // Runs of 64 KiB, scattered.
    const size_t bytes = std::min(wanted.num_pages, state_->most_pages) * page_bytes;
    for (size_t offset = 0; offset < bytes; offset += nvme::kGpuPageBytes) {
      auto* run = reinterpret_cast<std::byte*>(wanted.start) + offset;
      const size_t run_bytes = std::min(bytes - offset, nvme::kGpuPageBytes);
      mapping.memory.push_back(
          controller_.memory().map(run, run_bytes, nvme::DmaShape::kContiguous));
      for (size_t done = 0; done < run_bytes; done += page_bytes) {
        wanted.pages[(offset + done) / page_bytes] = mapping.memory.back().address(done);
      }
    }
    list.push_back(std::move(mapping));
    return 0;
  }

  /// Finds what this thread mapped, by the address rounded down to a page of the host or of a GPU.
  static bool unmap(uint64_t start, std::vector<FakeModuleState::Mapping>& list) {
    const auto found = std::ranges::find_if(list, [&](const FakeModuleState::Mapping& mapping) {
      return mapping.owner == std::this_thread::get_id() &&
             (mapping.start == start / nvme::kPageBytes * nvme::kPageBytes ||
              mapping.start == start / nvme::kGpuPageBytes * nvme::kGpuPageBytes);
    });
    if (found == list.end()) return false;
    list.erase(found);
    return true;
  }

  const std::shared_ptr<FakeModuleState> state_;
  nvme::EmulatedController controller_;
};

}  // namespace lsm::testing
