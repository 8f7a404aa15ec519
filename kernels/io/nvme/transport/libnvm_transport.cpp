// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/libnvm_transport.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/io/nvme/transport/call_thread.h"
#include "kernels/io/nvme/transport/locked_memory.h"

namespace lsm::nvme {

/// Makes all requests to the module from one thread: the module finds a mapping only for the thread
/// that made it, and keeps mappings that are never unmapped as long as it is loaded.
class LibnvmMappings : public std::enable_shared_from_this<LibnvmMappings> {
 public:
  explicit LibnvmMappings(std::unique_ptr<LibnvmNode> node) : node_(std::move(node)) {}

  LibnvmNode& node() { return *node_; }

  /// Maps `memory`; sets its pages, and an owner that unmaps it and then lets the old one go.
  void map(unsigned long request, size_t page_bytes, DmaMemory& memory) {
    // For pages that it cannot pin, the module writes no address and reports no error.
    std::vector<uint64_t> addresses(memory.bytes / page_bytes, 0);
    LibnvmMapRequest argument{reinterpret_cast<uintptr_t>(memory.data), addresses.size(),
                              addresses.data()};
    const int error = call(request, &argument);
    if (error != 0) throw std::runtime_error(problem(request, memory.bytes, error));
    memory.owner = std::shared_ptr<void>(
        memory.data, [self = shared_from_this(), old = memory.owner](void* start) {
          auto address = reinterpret_cast<uintptr_t>(start);
          self->call(kLibnvmUnmap, &address);
        });
    memory.pages.clear();
    for (const uint64_t address : addresses) {
      if (address == 0) {
        throw std::runtime_error(concat(node_->path(), ": the module mapped only ",
                                        memory.pages.size() * kPageBytes, " of ", memory.bytes,
                                        " bytes; free some memory"));
      }
      for (size_t offset = 0; offset < page_bytes; offset += kPageBytes) {
        memory.pages.push_back(address + offset);
      }
    }
  }

 private:
  int call(unsigned long request, void* argument) {
    int error = 0;
    thread_.call([&] { error = node_->request(request, argument); });
    return error;
  }

  std::string problem(unsigned long request, size_t bytes, int error) {
    if (request == kLibnvmMapGpu) {
      const std::string missing = gpu_support_problem(*node_);
      if (!missing.empty()) return missing;
    }
    const char* kind = request == kLibnvmMapGpu ? "GPU" : "host";
    return concat(node_->path(), ": cannot map ", bytes, " bytes of ", kind,
                  " memory: ", std::strerror(error), "; the kernel log (dmesg) says more");
  }

  const std::unique_ptr<LibnvmNode> node_;
  CallThread thread_;
};

LibnvmTransport::LibnvmTransport(std::unique_ptr<LibnvmNode> node)
    : name_(node->path()),
      mappings_(std::make_shared<LibnvmMappings>(std::move(node))),
      // The module looks a mapping up by its address rounded down to a GPU page, so no two may
      // share one; pieces of the arena are larger, and aligned to more.
      arena_(DmaArena::create([mappings = mappings_](size_t bytes) {
        DmaMemory memory = map_host_pages(bytes).memory;
        mappings->map(kLibnvmMapHost, kPageBytes, memory);
        return memory;
      })) {
  map_registers();
}

DmaMemory LibnvmTransport::allocate(size_t bytes, DmaShape shape) {
  return arena_->allocate(bytes, shape);
}

DmaMemory LibnvmTransport::map_gpu_memory(std::byte* data, size_t bytes) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  check_argument(start % kGpuPageBytes == 0 && bytes % kGpuPageBytes == 0 && bytes > 0,
                 "GPU memory: expected an address and a size that are multiples of ", kGpuPageBytes,
                 ", got ", start, " and ", bytes);
  DmaMemory memory;
  memory.data = data;
  memory.bytes = bytes;
  mappings_->map(kLibnvmMapGpu, kGpuPageBytes, memory);
  return memory;
}

void LibnvmTransport::map_registers() {
  // Doorbells of 511 queues with the usual stride; where they lie wider apart, those of 64.
  constexpr size_t kUsualBytes = 2 * kPageBytes;
  constexpr uint32_t kMostQueues = 64;
  LibnvmNode& node = mappings_->node();
  std::byte* registers = node.map_registers(kUsualBytes);
  if (registers == nullptr) {
    throw std::runtime_error(concat(name_, ": has no ", kUsualBytes, " bytes of registers"));
  }
  register_bytes_ = kUsualBytes;
  registers_ = reinterpret_cast<uint32_t*>(registers);
  const Capabilities capabilities{registers_[0] | static_cast<uint64_t>(registers_[1]) << 32};
  const size_t end = tail_doorbell_offset(kMostQueues + 1, capabilities.doorbell_stride_bytes());
  if (end <= register_bytes_) return;
  const size_t wanted = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
  registers = node.map_registers(wanted);
  const bool fits = registers != nullptr;
  if (!fits) registers = node.map_registers(kUsualBytes);
  check_argument(registers != nullptr, name_, ": its registers cannot be mapped any more");
  registers_ = reinterpret_cast<uint32_t*>(registers);
  register_bytes_ = fits ? wanted : kUsualBytes;
}

}  // namespace lsm::nvme
