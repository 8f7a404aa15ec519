// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/file_storage.h"

#include <cerrno>
#include <cstring>

#include "kernels/core/check.h"

namespace lsm {

FileStorage::FileStorage(std::string engine, std::vector<std::string> paths,
                         const RowLayout& layout, const EngineOptions& options)
    : QueuedStorage(std::move(engine), layout, options),
      files_(std::move(paths), layout, options.direct) {
  check_max_read();
  if (!files_.fallback_reason().empty()) notes_.push_back(files_.fallback_reason());
}

FileStorage::Progress FileStorage::advance(ActiveRead& read, int64_t result) {
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
  // A file that ends within this block would bring the same part of it each time.
  const bool is_cut = arrived == read.done && files_.ends_before(static_cast<size_t>(extent.file),
                                                                 extent.offset + extent.needed);
  if (result == 0 || is_cut) {
    deliver_error(read, EIO, "the file ends before this row; it was truncated while in use");
    return Progress::kFinished;
  }
  read.done = arrived;
  return Progress::kReadAgain;
}

void FileStorage::deliver_error(ActiveRead& read, int error_number, const std::string& what) {
  stats_.errors.fetch_add(1, std::memory_order_relaxed);
  const std::string& path = files_.path(read.claim.extent->file);
  read.claim.group->fail(
      *read.claim.extent,
      std::make_exception_ptr(SystemError(
          error_number, path,
          concat("read of ", read.bytes_left(), " bytes at offset ", read.offset(), ": ", what))));
}

}  // namespace lsm
