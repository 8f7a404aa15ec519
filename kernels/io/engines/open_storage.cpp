// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/open_storage.h"

#include "kernels/core/check.h"
#include "kernels/io/engines/io_uring_storage.h"
#include "kernels/io/engines/posix_storage.h"
#include "kernels/io/engines/resident_storage.h"
#include "kernels/io/nvme/engine/nvme_storage.h"

namespace lsm {

std::unique_ptr<Storage> open_storage(const std::string& engine, std::vector<std::string> paths,
                                      const RowLayout& layout, const EngineOptions& options,
                                      const nvme::NvmeOptions& nvme) {
  check_argument(layout.num_rows >= 0 && layout.row_bytes > 0,
                 "layout: expected rows of at least one byte, got ", layout.num_rows, " rows of ",
                 layout.row_bytes, " bytes");
  check_argument(layout.num_files == 1 || (layout.num_files > 1 && layout.stripe_bytes >= 4096 &&
                                           layout.stripe_bytes % 4096 == 0),
                 "stripe_bytes: expected a multiple of 4096, got ", layout.stripe_bytes);
  if (engine == "memory") return std::make_unique<MemoryStorage>(std::move(paths), layout, options);
  if (engine == "mmap") return std::make_unique<MmapStorage>(std::move(paths), layout, options);
  if (engine == "posix") return std::make_unique<PosixStorage>(std::move(paths), layout, options);
  if (engine == "nvme") {
    return std::make_unique<nvme::NvmeStorage>(std::move(paths), layout, options, nvme);
  }
#if LSM_HAS_IO_URING
  if (engine == "io_uring") {
    return std::make_unique<IoUringStorage>(std::move(paths), layout, options);
  }
#else
  if (engine == "io_uring") {
    throw std::runtime_error(
        concat("engine io_uring: ", io_uring_problem(), "; or use storage.engine=posix"));
  }
#endif
  throw ArgumentError(
      concat("engine: expected memory, mmap, posix, io_uring or nvme, got '", engine, "'"));
}

#if !LSM_HAS_IO_URING
std::string io_uring_problem() {
  return "this build has no io_uring; install liburing (Debian: liburing-dev) and build again";
}
#endif

}  // namespace lsm
