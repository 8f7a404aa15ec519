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
  check_argument(options.max_gap_bytes >= 0, "max_gap_bytes: expected at least 0, got ",
                 options.max_gap_bytes);
  if (!files_.fallback_reason().empty()) notes_.push_back(files_.fallback_reason());
}

Storage::Requests QueuedStorage::start(std::span<const RowRead> reads) {
  const std::string where =
      files_.count() == 1 ? files_.path(0)
                          : concat(files_.path(0), " and ", files_.count() - 1, " more files");
  Requests requests;
  for (const RowRead& read : reads) {
    requests.push_back(std::make_shared<Request>(
        read.output.data(), concat(engine_, ": reading ", read.rows.size(), " rows of ", where)));
  }
  const MergeRule rule{files_.block_bytes(), options_.max_read_bytes, options_.max_gap_bytes};
  auto group =
      std::make_shared<ReadGroup>(plan_reads(reads, layout_, rule), requests, stats_.outstanding);
  if (!group->empty()) queue_.push(std::move(group));
  return requests;
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
    read.claim.group->complete(extent, read.buffer);
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
  read.claim.group->fail(
      *read.claim.extent,
      std::make_exception_ptr(SystemError(
          error_number, path,
          concat("read of ", read.bytes_left(), " bytes at offset ", read.offset(), ": ", what))));
}

uint64_t QueuedStorage::now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace lsm
