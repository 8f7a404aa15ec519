// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/storage.h"

namespace lsm {

/// Opens `paths` with the named engine: memory, mmap, posix, io_uring or nvme. Throws ArgumentError
/// for another name or options out of range, and the errors of the engine.
std::unique_ptr<Storage> open_storage(const std::string& engine, std::vector<std::string> paths,
                                      const RowLayout& layout, const EngineOptions& options,
                                      const nvme::NvmeOptions& nvme = {});

}  // namespace lsm
