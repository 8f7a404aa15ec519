// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/posix_transfers.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "kernels/core/check.h"

namespace lsm {

PosixTransfers::PosixTransfers(std::string path, const TransferOptions& options, DirectMode direct)
    : Transfers("posix", path, options),
      file_(std::move(path), direct, options.read_only),
      pool_(std::min(options.queue_depth, kMostThreads)) {}

void PosixTransfers::run(SwapChunks& chunks, const Deadline& deadline) {
  pool_.parallel_for(chunks.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end && !chunks.failed(); ++index) {
      move(chunks, index, deadline);
    }
  });
}

void PosixTransfers::move(SwapChunks& chunks, int64_t index, const Deadline& deadline) {
  SwapChunk chunk = chunks.start(index);
  Backoff backoff;
  for (;;) {
    if (deadline.passed()) throw TimeoutError("");
    const auto bytes = static_cast<size_t>(chunk.bytes_left());
    const ssize_t count = chunk.writes
                              ? pwrite(file_.descriptor(), chunk.address(), bytes, chunk.position())
                              : pread(file_.descriptor(), chunk.address(), bytes, chunk.position());
    const Next next = complete(chunks, chunk, count < 0 ? -errno : count);
    if (next == Next::kEnd) return;
    while (next == Next::kLost && !deadline.passed()) backoff.pause();
  }
}

}  // namespace lsm
