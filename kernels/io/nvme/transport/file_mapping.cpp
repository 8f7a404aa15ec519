// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/file_mapping.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/core/check.h"

namespace lsm::nvme {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  const int error = errno;
  const bool forbidden = error == EACCES || error == EPERM;
  throw SystemError(
      error, path,
      concat(what, ": ", std::strerror(error),
             forbidden ? "; run as root, and without the lockdown of Secure Boot" : ""));
}

}  // namespace

FileHandle::FileHandle(std::string path, int flags)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), flags | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(path_, "cannot open");
}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  reset();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

void FileHandle::reset() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

void FileHandle::lock() const {
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) fail(path_, "cannot lock");
  throw SystemError(EBUSY, path_, "in use by another process, which holds its lock");
}

void FileHandle::read(void* data, size_t bytes, size_t offset) const {
  const ssize_t done = pread(descriptor_, data, bytes, static_cast<off_t>(offset));
  if (done < 0) fail(path_, "cannot read");
  if (static_cast<size_t>(done) != bytes) {
    throw SystemError(EIO, path_, concat("short read: expected ", bytes, " bytes, got ", done));
  }
}

void FileHandle::write(const void* data, size_t bytes, size_t offset) const {
  const ssize_t done = pwrite(descriptor_, data, bytes, static_cast<off_t>(offset));
  if (done < 0) fail(path_, "cannot write");
  if (static_cast<size_t>(done) != bytes) {
    throw SystemError(EIO, path_, concat("short write: expected ", bytes, " bytes, got ", done));
  }
}

FileMapping::FileMapping(const FileHandle& file, size_t bytes) : bytes_(bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) fail(file.path(), "cannot map");
  data_ = static_cast<std::byte*>(data);
}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  reset();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = other.bytes_;
  return *this;
}

void FileMapping::reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
}

}  // namespace lsm::nvme
