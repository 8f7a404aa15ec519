// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/feature_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/core/buffer.h"
#include "kernels/core/check.h"

namespace lsm {
namespace {

constexpr int64_t kFileSystemBlockBytes = 4096;

}  // namespace

int64_t direct_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status{};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    return status.stx_dio_offset_align;
  }
#else
  (void)descriptor;
#endif
  return 0;
}

FeatureFiles::FeatureFiles(std::vector<std::string> paths, const RowLayout& layout, DirectMode mode)
    : paths_(std::move(paths)), layout_(layout) {
  check_argument(static_cast<int64_t>(paths_.size()) == layout.num_files, "paths: expected ",
                 layout.num_files, " files, got ", paths_.size());
  try {
    open_all(0);
    check_sizes();
    if (mode == DirectMode::kOff) return;
    for (int descriptor : descriptors_) {
      block_bytes_ = std::max(block_bytes_, direct_alignment(descriptor));
    }
    close_all();
    open_all(O_DIRECT);
    // Some file systems accept the flag and refuse the reads, so one block is read from each.
    const HostBlock block(static_cast<size_t>(block_bytes_));
    for (size_t i = 0; i < paths_.size(); ++i) {
      if (pread(descriptors_[i], block.data(), block_bytes_, 0) < 0) {
        throw SystemError(errno, paths_[i], concat("direct read: ", std::strerror(errno)));
      }
    }
    direct_ = true;
  } catch (const SystemError& error) {
    close_all();
    if (mode != DirectMode::kAuto || error.error_number != EINVAL) throw;
    fallback_reason_ =
        concat(error.file, " does not support O_DIRECT; reading through the page ", "cache");
    block_bytes_ = kFileSystemBlockBytes;
    open_all(0);
  }
}

FeatureFiles::~FeatureFiles() {
  close_all();
}

void FeatureFiles::open_all(int extra_flags) {
  for (const std::string& path : paths_) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | extra_flags);
    if (descriptor < 0) {
      throw SystemError(errno, path, concat("cannot open: ", std::strerror(errno)));
    }
    descriptors_.push_back(descriptor);
  }
}

void FeatureFiles::close_all() {
  for (int descriptor : descriptors_) close(descriptor);
  descriptors_.clear();
}

void FeatureFiles::check_sizes() const {
  for (size_t i = 0; i < paths_.size(); ++i) {
    struct stat status{};
    if (fstat(descriptors_[i], &status) != 0) {
      throw SystemError(errno, paths_[i], concat("fstat: ", std::strerror(errno)));
    }
    const int64_t expected = layout_.file_bytes(static_cast<int64_t>(i));
    if (status.st_size < expected) {
      throw SystemError(EIO, paths_[i],
                        concat("truncated: expected at least ", expected, " bytes, got ",
                               status.st_size, "; convert the data again or restore the file"));
    }
  }
}

bool FeatureFiles::ends_before(size_t file, int64_t num_bytes) const {
  struct stat status{};
  return fstat(descriptors_[file], &status) == 0 && status.st_size < num_bytes;
}

}  // namespace lsm
