// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Owners of a descriptor and of a mapping. Their errors name the file and the operation.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace lsm::nvme {

/// Owns a file descriptor.
class FileHandle {
 public:
  FileHandle() = default;
  /// Opens `path` with `flags` and O_CLOEXEC. Throws SystemError.
  FileHandle(std::string path, int flags);
  ~FileHandle() { reset(); }
  FileHandle(FileHandle&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept;

  int get() const { return descriptor_; }
  const std::string& path() const { return path_; }

  /// Locks the file against other callers of lock() until it is closed. Throws SystemError (EBUSY)
  /// if another process holds the lock.
  void lock() const;
  /// Reads or writes exactly `bytes` at `offset`. Throws SystemError.
  void read(void* data, size_t bytes, size_t offset) const;
  void write(const void* data, size_t bytes, size_t offset) const;

 private:
  void reset();

  std::string path_;
  int descriptor_ = -1;
};

/// Owns a shared mapping of a drive's registers.
class FileMapping {
 public:
  FileMapping() = default;
  /// Maps the first `bytes` of `file`. Throws SystemError.
  FileMapping(const FileHandle& file, size_t bytes);
  ~FileMapping() { reset(); }
  FileMapping(FileMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  FileMapping& operator=(FileMapping&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  void reset();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace lsm::nvme
