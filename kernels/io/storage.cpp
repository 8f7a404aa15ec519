// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/storage.h"

#include "kernels/core/check.h"
#include "kernels/gather/gather.h"
#include "kernels/io/posix_storage.h"
#include "kernels/io/resident_storage.h"
#if LSM_HAS_IO_URING
#include "kernels/io/io_uring_storage.h"
#endif

namespace lsm {

std::shared_ptr<Request> Storage::submit(std::span<const int64_t> rows,
                                         std::span<std::byte> output) {
  const auto expected = rows.size() * static_cast<size_t>(layout_.row_bytes);
  check_argument(output.size() == expected, "out: expected ", expected, " bytes (", rows.size(),
                 " rows of ", layout_.row_bytes, "), got ", output.size());
  return checked_start(rows, {}, output.data());
}

std::shared_ptr<Request> Storage::submit(std::span<const int64_t> rows,
                                         std::span<const int64_t> positions,
                                         std::span<std::byte> output) {
  const auto row_bytes = static_cast<size_t>(layout_.row_bytes);
  check_argument(positions.size() == rows.size(), "positions: expected ", rows.size(),
                 ", one per id, got ", positions.size());
  check_argument(output.size() % row_bytes == 0, "out: expected a multiple of ", row_bytes,
                 " bytes (whole rows), got ", output.size());
  check_ids("positions", positions, static_cast<int64_t>(output.size() / row_bytes));
  return checked_start(rows, positions, output.data());
}

std::shared_ptr<Request> Storage::checked_start(std::span<const int64_t> rows,
                                                std::span<const int64_t> positions,
                                                std::byte* output) {
  check_ids("ids", rows, layout_.num_rows);
  const auto num_rows = static_cast<int64_t>(rows.size());
  stats_.requests.fetch_add(1, std::memory_order_relaxed);
  stats_.rows.fetch_add(num_rows, std::memory_order_relaxed);
  stats_.bytes_requested.fetch_add(num_rows * layout_.row_bytes, std::memory_order_relaxed);
  return start(rows, positions, output);
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
      concat("engine: expected memory, mmap, posix or io_uring, got '", engine, "'"));
}

#if !LSM_HAS_IO_URING
std::string io_uring_problem() {
  return "this build has no io_uring; install liburing (Debian: liburing-dev) and build again";
}
#endif

}  // namespace lsm
