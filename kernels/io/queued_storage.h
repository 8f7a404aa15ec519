// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels/io/read_queue.h"
#include "kernels/io/storage.h"

namespace lsm {

/// What the asynchronous engines share: reads that are planned together, and a queue of extents,
/// which their workers empty.
class QueuedStorage : public Storage {
 public:
  std::vector<std::string> notes() const override { return notes_; }

 protected:
  QueuedStorage(std::string engine, const RowLayout& layout, const EngineOptions& options);

  Requests start(std::span<const RowRead> reads) override;
  /// The path of what part `file` of the rows lies on.
  virtual const std::string& path(size_t file) const = 0;
  /// The longest single read: what was asked for, or less where the drive allows no more.
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
