// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lsm {

/// A memory-mapped file. A page that cannot be read (truncated file, disk error) would end the
/// process with SIGBUS. Here the whole mapping becomes zeros instead, and check() throws from then
/// on. So read, call check(), and only then use the data.
class MappedFile {
 public:
  /// Maps the first `bytes` bytes of the file, or all of it if negative. Writes to the memory stay
  /// in the process. Throws SystemError.
  explicit MappedFile(std::string path, int64_t bytes = -1);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Throws SystemError (EIO) if a page could not be read, or if the file is shorter than the
  /// mapping: the rest of its last page reads as zeros then, without a signal.
  void check() const;

  struct Entry;  // of the list that the signal handler reads

 private:
  std::string path_;
  int descriptor_ = -1;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Entry* entry_ = nullptr;
};

/// Calls check() of the MappedFile that holds `address`, if one does. The mapping must outlive the
/// call.
void check_mapped(const void* address);

}  // namespace lsm
