// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels/io/read_queue.h"
#include "kernels/io/storage.h"

namespace lsm {

/// Base of asynchronous engines: plans reads together, and queues extents for their workers.
class QueuedStorage : public Storage {
 public:
  std::vector<std::string> notes() const override { return notes_; }

 protected:
  QueuedStorage(std::string engine, const RowLayout& layout, const EngineOptions& options);

  Requests start(std::span<const RowRead> reads) override;
  /// The path of the file or drive with part `file` of the rows.
  virtual const std::string& path(size_t file) const = 0;
  /// The longest single read: the requested length, or less if the drive's limit is lower.
  virtual int64_t max_read_bytes() const { return options_.max_read_bytes; }
  /// Throws ArgumentError if max_read_bytes() is no multiple of the block, or less than two of
  /// them.
  void check_max_read() const;

  static uint64_t now_ns();

  const EngineOptions options_;
  ReadQueue queue_;
  std::vector<std::string> notes_;
};

}  // namespace lsm
