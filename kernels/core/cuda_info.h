// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lsm {

/// A GPU as the CUDA runtime sees it.
struct GpuInfo {
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  int64_t total_bytes = 0;
  std::string bus_id;  // its PCI address, as CUDA writes it
};

/// GPUs, driver and toolkit as the CUDA runtime of this build finds them.
struct CudaInfo {
  int toolkit_version = 0;  // 1000 * major + 10 * minor; 0: built without CUDA
  int driver_version = 0;   // the newest toolkit that the driver serves; 0: no driver
  std::string problem;      // reason why no GPU can be used; empty if there are some
  std::vector<GpuInfo> gpus;
};

/// True if this build has GPU code. Asks no driver.
bool has_cuda();

/// Does not throw if something is missing.
CudaInfo find_cuda();

}  // namespace lsm
