// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/io/row_layout.h"

namespace lsm {

/// Reads bypass the page cache or not: kAuto tries, and falls back where the file system refuses.
enum class DirectMode { kAuto, kOn, kOff };

/// The alignment that direct transfers of a file need; 0 if the kernel does not tell.
int64_t direct_alignment(int descriptor);

/// Owns the read-only descriptors of a store's feature files.
class FeatureFiles {
 public:
  /// Opens all files. Throws SystemError if one cannot be opened or is shorter than the layout
  /// needs, and for kOn if a file does not support direct reads.
  FeatureFiles(std::vector<std::string> paths, const RowLayout& layout, DirectMode mode);
  ~FeatureFiles();
  FeatureFiles(const FeatureFiles&) = delete;
  FeatureFiles& operator=(const FeatureFiles&) = delete;

  int descriptor(size_t file) const { return descriptors_[file]; }
  const std::vector<int>& descriptors() const { return descriptors_; }
  const std::string& path(size_t file) const { return paths_[file]; }
  size_t count() const { return paths_.size(); }
  bool direct() const { return direct_; }
  /// The reason against direct reads; empty if they are used or were not requested.
  const std::string& fallback_reason() const { return fallback_reason_; }
  /// The unit of a read's offset and length: the file system block, or more if direct reads need
  /// it.
  int64_t block_bytes() const { return block_bytes_; }

  /// Throws SystemError if a file has become shorter than the layout needs.
  void check_sizes() const;
  /// True if `file` is now shorter than `num_bytes`.
  bool ends_before(size_t file, int64_t num_bytes) const;

 private:
  void open_all(int extra_flags);
  void close_all();

  std::vector<std::string> paths_;
  RowLayout layout_;
  std::vector<int> descriptors_;
  bool direct_ = false;
  std::string fallback_reason_;
  int64_t block_bytes_ = 4096;
};

}  // namespace lsm
