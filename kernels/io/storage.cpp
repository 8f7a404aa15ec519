// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/storage.h"

#include "kernels/core/check.h"
#include "kernels/gather/gather.h"
#include "kernels/io/engines/posix_storage.h"
#include "kernels/io/engines/resident_storage.h"
#include "kernels/io/nvme/engine/nvme_storage.h"
#if LSM_HAS_IO_URING
#include "kernels/io/engines/io_uring_storage.h"
#endif

namespace lsm {

void Storage::check(const RowRead& read) const {
  check_ids("ids", read.rows, layout_.num_rows);
  const auto row_bytes = static_cast<size_t>(layout_.row_bytes);
  if (read.positions.empty()) {
    const size_t expected = read.rows.size() * row_bytes;
    check_argument(read.rows.empty() || read.output.size() == expected, "out: expected ", expected,
                   " bytes (", read.rows.size(), " rows of ", row_bytes, "), got ",
                   read.output.size());
    return;
  }
  check_argument(read.positions.size() == read.rows.size(), "positions: expected ",
                 read.rows.size(), ", one per id, got ", read.positions.size());
  check_argument(read.output.size() % row_bytes == 0, "out: expected a multiple of ", row_bytes,
                 " bytes (whole rows), got ", read.output.size());
  check_ids("positions", read.positions, static_cast<int64_t>(read.output.size() / row_bytes));
}

Storage::Requests Storage::submit(std::span<const RowRead> reads) {
  for (const RowRead& read : reads) check(read);
  for (const RowRead& read : reads) {
    const auto num_rows = static_cast<int64_t>(read.rows.size());
    stats_.requests.fetch_add(1, std::memory_order_relaxed);
    stats_.rows.fetch_add(num_rows, std::memory_order_relaxed);
    stats_.bytes_requested.fetch_add(num_rows * layout_.row_bytes, std::memory_order_relaxed);
  }
  return reads.empty() ? Requests{} : start(reads);
}

std::unique_ptr<Storage> open_storage(const std::string& engine, std::vector<std::string> paths,
                                      const RowLayout& layout, const EngineOptions& options) {
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
    return std::make_unique<nvme::NvmeStorage>(std::move(paths), layout, options);
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
