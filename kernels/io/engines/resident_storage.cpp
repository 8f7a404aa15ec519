// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/resident_storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "kernels/core/check.h"
#include "kernels/gather/copy_rows.h"

namespace lsm {
namespace {

constexpr int64_t kCopyGrain = 256;      // rows copied by one thread at a time
constexpr int64_t kLoadBytes = 8 << 20;  // bytes of one pread while loading

/// MemAvailable of /proc/meminfo in bytes; a huge number where that file cannot be read.
int64_t available_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kib = 0;
  while (meminfo >> key >> kib) {
    if (key == "MemAvailable:") return kib << 10;
    meminfo.ignore(64, '\n');
  }
  return INT64_MAX;
}

void load(const FeatureFiles& files, size_t file, int64_t bytes, std::byte* target) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        pread(files.descriptor(file), target + done, std::min(kLoadBytes, bytes - done), done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : EIO;
      throw SystemError(error, files.path(file),
                        concat("read at offset ", done, ": ",
                               count < 0 ? std::strerror(error) : "unexpected end of file"));
    }
    done += count;
  }
}

}  // namespace

ResidentStorage::ResidentStorage(std::string engine, std::vector<std::string> paths,
                                 const RowLayout& layout, const EngineOptions& options)
    : Storage(std::move(engine), layout),
      files_(std::move(paths), layout, DirectMode::kOff),
      pool_(options.num_threads) {}

Storage::Requests ResidentStorage::start(std::span<const RowRead> reads) {
  Requests requests;
  for (const RowRead& read : reads) {
    if (layout_.num_files == 1) {
      gather(read);
    } else {
      gather_striped(read);
    }
    const auto num_rows = static_cast<int64_t>(read.rows.size());
    stats_.reads.fetch_add(num_rows, std::memory_order_relaxed);
    stats_.bytes_read.fetch_add(num_rows * layout_.row_bytes, std::memory_order_relaxed);
    requests.push_back(std::make_shared<Request>(read.output.data(), engine_));
  }
  return requests;
}

void ResidentStorage::gather(const RowRead& read) {
  const int64_t row_bytes = layout_.row_bytes;
  copy_rows(
      static_cast<int64_t>(read.rows.size()), row_bytes,
      [=, base = bases_[0]](int64_t i) { return base + read.rows[i] * row_bytes; },
      [=](int64_t i) {
        return read.output.data() + (read.positions.empty() ? i : read.positions[i]) * row_bytes;
      },
      pool_);
}

void ResidentStorage::gather_striped(const RowRead& read) {
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* row =
          read.output.data() + (read.positions.empty() ? i : read.positions[i]) * layout_.row_bytes;
      layout_.for_each_run(
          read.rows[i], [&](int64_t file, int64_t offset, int64_t length, int64_t at) {
            std::memcpy(row + at, bases_[file] + offset, static_cast<size_t>(length));
          });
    }
  };
  pool_.parallel_for(static_cast<int64_t>(read.rows.size()), kCopyGrain, copy);
}

MemoryStorage::MemoryStorage(std::vector<std::string> paths, const RowLayout& layout,
                             const EngineOptions& options)
    : ResidentStorage("memory", std::move(paths), layout, options) {
  const int64_t available = available_memory_bytes();
  check_argument(layout.total_bytes() < available, "storage.engine=memory: the features take ",
                 layout.total_bytes() >> 20, " MiB, but only ", available >> 20,
                 " MiB of memory are available; use storage.engine=io_uring or posix");
  for (size_t file = 0; file < files_.count(); ++file) {
    const int64_t bytes = layout.file_bytes(static_cast<int64_t>(file));
    blocks_.push_back(std::make_unique<HostBlock>(static_cast<size_t>(bytes)));
    load(files_, file, bytes, blocks_.back()->data());
    bases_.push_back(blocks_.back()->data());
  }
}

MmapStorage::MmapStorage(std::vector<std::string> paths, const RowLayout& layout,
                         const EngineOptions& options)
    : ResidentStorage("mmap", std::move(paths), layout, options) {
  for (size_t file = 0; file < files_.count(); ++file) {
    const int64_t bytes = layout.file_bytes(static_cast<int64_t>(file));
    maps_.push_back(std::make_unique<MappedFile>(files_.path(file), bytes));
    std::byte* memory = maps_.back()->data();
    bases_.push_back(memory);
    madvise(memory, maps_.back()->size(), MADV_RANDOM);  // read-ahead would read MiB for each row
  }
}

Storage::Requests MmapStorage::start(std::span<const RowRead> reads) {
  Requests requests = ResidentStorage::start(reads);
  for (const auto& map : maps_) map->check();
  return requests;
}

}  // namespace lsm
