// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/queued_storage.h"

#include <cerrno>
#include <chrono>
#include <cstring>

#include "kernels/core/check.h"

namespace lsm {

QueuedStorage::QueuedStorage(std::string engine, std::vector<std::string> paths,
                             const RowLayout& layout, const EngineOptions& options)
    : Storage(std::move(engine), layout),
      options_(options),
      files_(std::move(paths), layout, options.direct) {
  check_argument(options.num_threads >= 1, "num_threads: expected at least 1, got ",
                 options.num_threads);
  check_argument(options.max_read_bytes >= 2 * files_.block_bytes() &&
                     options.max_read_bytes % files_.block_bytes() == 0,
                 "max_read_bytes: expected a multiple of the block (", files_.block_bytes(),
                 " bytes) of at least two blocks, got ", options.max_read_bytes);
  if (!files_.fallback_reason().empty()) notes_.push_back(files_.fallback_reason());
}

std::shared_ptr<Request> QueuedStorage::start(std::span<const int64_t> rows,
                                              std::span<const int64_t> positions,
                                              std::byte* output) {
  ReadPlan plan =
      plan_reads(rows, positions, layout_, files_.block_bytes(), options_.max_read_bytes);
  const std::string where =
      files_.count() == 1 ? files_.path(0)
                          : concat(files_.path(0), " and ", files_.count() - 1, " more files");
  auto request = std::make_shared<Request>(
      std::move(plan), output, concat(engine_, ": reading ", rows.size(), " rows of ", where));
  if (!request->done()) queue_.push(request);
  return request;
}

QueuedStorage::Progress QueuedStorage::advance(ActiveRead& read, int64_t result) {
  const Extent& extent = *read.claim.extent;
  if (result == -EINTR || result == -EAGAIN) return Progress::kReadAgain;
  if (result < 0) {
    deliver_error(read, static_cast<int>(-result), std::strerror(static_cast<int>(-result)));
    return Progress::kFinished;
  }
  stats_.bytes_read.fetch_add(result, std::memory_order_relaxed);
  if (read.done + result >= extent.needed) {
    read.claim.request->complete(extent, read.buffer);
    return Progress::kFinished;
  }
  stats_.short_reads.fetch_add(1, std::memory_order_relaxed);
  // Direct reads continue at a block boundary; a short read may have ended within a block.
  const uint32_t block = static_cast<uint32_t>(files_.block_bytes());
  const uint32_t arrived = (read.done + static_cast<uint32_t>(result)) / block * block;
  if (result == 0) {
    deliver_error(read, EIO, "the file ends before this row; it was truncated while in use");
    return Progress::kFinished;
  }
  read.done = arrived;
  return Progress::kReadAgain;
}

void QueuedStorage::deliver_error(ActiveRead& read, int error_number, const std::string& what) {
  stats_.errors.fetch_add(1, std::memory_order_relaxed);
  const std::string& path = files_.path(read.claim.extent->file);
  read.claim.request->fail(std::make_exception_ptr(SystemError(
      error_number, path,
      concat("read of ", read.bytes_left(), " bytes at offset ", read.offset(), ": ", what))));
}

uint64_t QueuedStorage::now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace lsm
