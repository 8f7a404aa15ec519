// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/posix_storage.h"

#include <unistd.h>

#include <cerrno>

#include "kernels/core/start_thread.h"

namespace lsm {

PosixStorage::PosixStorage(std::vector<std::string> paths, const RowLayout& layout,
                           const EngineOptions& options)
    : FileStorage("posix", std::move(paths), layout, options) {
  for (int i = 0; i < options.num_threads; ++i) {
    buffers_.push_back(std::make_unique<HostBlock>(static_cast<size_t>(options_.max_read_bytes)));
  }
  start_threads(threads_, options.num_threads, [this] { work(); }, [this] { queue_.close(); });
}

PosixStorage::~PosixStorage() {
  queue_.close();
  for (std::thread& thread : threads_) thread.join();
}

void PosixStorage::work() {
  const HostBlock& buffer = *buffers_[next_buffer_.fetch_add(1)];
  std::vector<Claim> claims;
  while (queue_.claim(claims, 1, /*block=*/true)) {
    if (claims.empty()) continue;
    ActiveRead read{std::move(claims.front()), buffer.data()};
    claims.clear();
    read_extent(read);
  }
}

void PosixStorage::read_extent(ActiveRead& read) {
  const int descriptor = files_.descriptor(read.claim.extent->file);
  for (;;) {
    read.started_ns = now_ns();
    stats_.reads.fetch_add(1, std::memory_order_relaxed);
    const ssize_t count =
        pread(descriptor, read.buffer + read.done, read.bytes_left(), read.offset());
    const int64_t result = count < 0 ? -errno : count;
    stats_.latency.add(now_ns() - read.started_ns);
    bool stalled = false;
    const int64_t seen = faults_.apply(result, &stalled);
    if (stalled || advance(read, seen) == Progress::kFinished) return;
  }
}

}  // namespace lsm
