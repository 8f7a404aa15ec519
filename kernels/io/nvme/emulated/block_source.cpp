// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/emulated/block_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/core/check.h"

namespace lsm::nvme {

FileBlocks::FileBlocks(std::string path, uint64_t most_bytes, bool writable)
    : descriptor_(open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC)),
      writable_(writable) {
  struct stat status{};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
    const int error = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw SystemError(error, path, concat("cannot open: ", std::strerror(error)));
  }
  bytes_ = static_cast<uint64_t>(status.st_size);
  if (most_bytes > 0) bytes_ = std::min(bytes_, most_bytes);
}

FileBlocks::~FileBlocks() {
  close(descriptor_);
}

bool FileBlocks::read(uint64_t offset, std::span<const Segment> segments) {
  for (const Segment& segment : segments) {
    size_t done = 0;
    // The last block may reach past the end of the file as it was; a file that has become shorter
    // is a medium that has lost data.
    const uint64_t there = std::min<uint64_t>(segment.bytes, bytes_ - std::min(bytes_, offset));
    while (done < there) {
      const ssize_t count =
          pread(descriptor_, segment.data + done, there - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    std::memset(segment.data + done, 0, segment.bytes - done);
    offset += segment.bytes;
  }
  return true;
}

bool FileBlocks::write(uint64_t offset, std::span<const Segment> segments) {
  for (const Segment& segment : segments) {
    size_t done = 0;
    while (done < segment.bytes) {
      const ssize_t count = pwrite(descriptor_, segment.data + done, segment.bytes - done,
                                   static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<size_t>(count);
    }
    offset += segment.bytes;
  }
  return true;
}

bool FileBlocks::flush() {
  return fdatasync(descriptor_) == 0;
}

bool MemoryBlocks::read(uint64_t offset, std::span<const Segment> segments) {
  for (const Segment& segment : segments) {
    const uint64_t left = memory_.size() - std::min<uint64_t>(memory_.size(), offset);
    const size_t there = std::min<uint64_t>(segment.bytes, left);
    std::memcpy(segment.data, memory_.data() + offset, there);
    std::memset(segment.data + there, 0, segment.bytes - there);
    offset += segment.bytes;
  }
  return true;
}

}  // namespace lsm::nvme
