// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/writable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/core/buffer.h"
#include "kernels/core/check.h"

namespace lsm {

WritableFile::WritableFile(std::string path, DirectMode mode, bool read_only)
    : path_(std::move(path)), read_only_(read_only) {
  try {
    open_with(0);
    if (mode == DirectMode::kOff) return;
    const int64_t alignment = direct_alignment(descriptor_);
    close_it();
    open_with(O_DIRECT);
    block_bytes_ = std::max(block_bytes_, alignment);
    // Some file systems accept the flag and refuse the transfers.
    const HostBlock block(static_cast<size_t>(block_bytes_));
    if (pread(descriptor_, block.data(), block_bytes_, 0) < 0) {
      throw SystemError(errno, path_, concat("direct read: ", std::strerror(errno)));
    }
    direct_ = true;
  } catch (const SystemError& error) {
    close_it();
    if (mode != DirectMode::kAuto || error.error_number != EINVAL) throw;
    block_bytes_ = 4096;
    open_with(0);
  }
}

WritableFile::~WritableFile() {
  close_it();
}

void WritableFile::sync() const {
  if (fdatasync(descriptor_) != 0) {
    throw SystemError(errno, path_, concat("fdatasync: ", std::strerror(errno)));
  }
}

int64_t WritableFile::num_bytes() const {
  const off_t end = lseek(descriptor_, 0, SEEK_END);
  if (end < 0) throw SystemError(errno, path_, concat("lseek: ", std::strerror(errno)));
  return end;
}

void WritableFile::open_with(int extra_flags) {
  const int access = read_only_ ? O_RDONLY : O_RDWR;
  descriptor_ = open(path_.c_str(), access | O_CLOEXEC | extra_flags);
  if (descriptor_ < 0)
    throw SystemError(errno, path_, concat("cannot open: ", std::strerror(errno)));
}

void WritableFile::close_it() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace lsm
