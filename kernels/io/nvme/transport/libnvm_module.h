// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The interface of the kernel module `libnvm` of the BaM project (github.com/ZaidQureshi/bam, after
// enfiskutensykkel/ssd-gpu-dma) at /dev/libnvmN: registers to map, and three requests.
#pragma once

#include <sys/ioctl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/io/nvme/transport/file_mapping.h"

namespace lsm::nvme {

/// The argument of the two requests that map memory.
struct LibnvmMapRequest {
  uint64_t start;    // virtual address of the first page
  size_t num_pages;  // of kPageBytes (host) or kGpuPageBytes (GPU)
  uint64_t* pages;   // receives the bus address of each page that could be mapped
};
static_assert(sizeof(LibnvmMapRequest) == 24);

inline constexpr unsigned long kLibnvmMapHost = _IOW(0x80, 1, LibnvmMapRequest);
/// Answered with EINVAL by a module that was built without the headers of the GPU's driver.
inline constexpr unsigned long kLibnvmMapGpu = _IOW(0x80, 2, LibnvmMapRequest);
/// Takes a pointer to the mapped virtual address.
inline constexpr unsigned long kLibnvmUnmap = _IOW(0x80, 3, uint64_t);

inline constexpr size_t kGpuPageBytes = 64 << 10;

/// A controller's device node. Tests put a module of their own in its place.
class LibnvmNode {
 public:
  virtual ~LibnvmNode() = default;
  LibnvmNode(const LibnvmNode&) = delete;
  LibnvmNode& operator=(const LibnvmNode&) = delete;

  virtual std::string path() const = 0;
  /// The first `bytes` of BAR0; nullptr if BAR0 is smaller. Valid until the next call, or the end.
  virtual std::byte* map_registers(size_t bytes) = 0;
  /// ioctl(): 0, or the error as a positive number.
  virtual int request(unsigned long request, void* argument) = 0;

 protected:
  LibnvmNode() = default;
};

/// Opens the device node `path`, exclusively among callers of this function. Throws SystemError,
/// with the reason, if it is missing, permission is lacking, another process holds it, or it
/// belongs to another driver.
std::unique_ptr<LibnvmNode> open_libnvm_node(const std::string& path);

/// The reason why `node` cannot map GPU memory (a module built without GPU support); empty if it
/// can.
std::string gpu_support_problem(LibnvmNode& node);

/// The reason against GPU-initiated IO through the device node `path`; empty if it is possible.
std::string libnvm_problem(const std::string& path);

}  // namespace lsm::nvme
