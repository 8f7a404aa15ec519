// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/io/queued_storage.h"

namespace lsm {

/// Base of engines whose workers read files: owns the files and interprets the results of reads.
class FileStorage : public QueuedStorage {
 public:
  int64_t block_bytes() const override { return files_.block_bytes(); }
  bool direct() const override { return files_.direct(); }

 protected:
  FileStorage(std::string engine, std::vector<std::string> paths, const RowLayout& layout,
              const EngineOptions& options);

  /// A claimed extent while it is read into `buffer`.
  struct ActiveRead {
    Claim claim;
    std::byte* buffer = nullptr;
    uint32_t done = 0;  // bytes of the extent that have arrived
    uint64_t started_ns = 0;

    int64_t offset() const { return claim.extent->offset + done; }
    uint32_t bytes_left() const { return claim.extent->bytes - done; }
  };

  const std::string& path(size_t file) const override { return files_.path(file); }

  enum class Progress { kFinished, kReadAgain };

  /// Accounts for a read that returned `result` (bytes, or -errno). kFinished: the extent was
  /// delivered or failed. kReadAgain: issue another read of the rest (short read, interruption).
  Progress advance(ActiveRead& read, int64_t result);

  FeatureFiles files_;

 private:
  void deliver_error(ActiveRead& read, int error_number, const std::string& what);
};

}  // namespace lsm
