// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kernels/io/feature_files.h"

namespace lsm {

/// Owns the descriptor of a file that is read and, unless read_only, written in blocks.
class WritableFile {
 public:
  /// Opens `path`, which exists. Throws SystemError if it cannot be opened, and for kOn if it does
  /// not support direct transfers.
  WritableFile(std::string path, DirectMode mode, bool read_only = false);
  ~WritableFile();
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }
  /// Unit of offsets, lengths and addresses.
  int64_t block_bytes() const { return block_bytes_; }
  /// Throws SystemError.
  int64_t num_bytes() const;
  /// Throws SystemError. Blocks until all writes are durable.
  void sync() const;

 private:
  void open_with(int extra_flags);
  void close_it();

  std::string path_;
  bool read_only_;
  int descriptor_ = -1;
  bool direct_ = false;
  int64_t block_bytes_ = 4096;
};

}  // namespace lsm
