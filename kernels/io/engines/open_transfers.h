// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/transfers.h"
#include "kernels/io/writable_file.h"

namespace lsm {

/// Opens `path` for transfers with the named engine: io_uring, posix or nvme. Throws ArgumentError
/// for another name and for options out of range, and as the engine does.
std::unique_ptr<Transfers> open_transfers(const std::string& engine, std::string path,
                                          const TransferOptions& options, DirectMode direct,
                                          const nvme::NvmeOptions& nvme = {});

}  // namespace lsm
