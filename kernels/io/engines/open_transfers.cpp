// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/open_transfers.h"

#include <stdexcept>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/io/engines/io_uring_storage.h"
#include "kernels/io/engines/io_uring_transfers.h"
#include "kernels/io/engines/posix_transfers.h"
#include "kernels/io/nvme/engine/nvme_transfers.h"

namespace lsm {

std::unique_ptr<Transfers> open_transfers(const std::string& engine, std::string path,
                                          const TransferOptions& options, DirectMode direct,
                                          const nvme::NvmeOptions& nvme) {
  if (engine == "nvme") {
    return std::make_unique<nvme::NvmeTransfers>(std::move(path), options, nvme);
  }
  if (engine == "posix") return std::make_unique<PosixTransfers>(std::move(path), options, direct);
#if LSM_HAS_IO_URING
  if (engine == "io_uring") {
    return std::make_unique<IoUringTransfers>(std::move(path), options, direct);
  }
#else
  if (engine == "io_uring") {
    throw std::runtime_error(
        concat("engine io_uring: ", io_uring_problem(), "; or use storage.engine=posix"));
  }
#endif
  throw ArgumentError(concat("engine: expected io_uring, posix or nvme, got '", engine, "'"));
}

}  // namespace lsm
