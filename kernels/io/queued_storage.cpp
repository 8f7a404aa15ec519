// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/queued_storage.h"

#include <chrono>

#include "kernels/core/check.h"

namespace lsm {

QueuedStorage::QueuedStorage(std::string engine, const RowLayout& layout,
                             const EngineOptions& options)
    : Storage(std::move(engine), layout), options_(options) {
  check_argument(options.num_threads >= 1, "num_threads: expected at least 1, got ",
                 options.num_threads);
  check_argument(options.max_gap_bytes >= 0, "max_gap_bytes: expected at least 0, got ",
                 options.max_gap_bytes);
}

void QueuedStorage::check_max_read() const {
  check_argument(max_read_bytes() >= 2 * block_bytes() && max_read_bytes() % block_bytes() == 0,
                 "max_read_bytes: expected a multiple of the block (", block_bytes(),
                 " bytes) of at least two blocks, got ", max_read_bytes());
}

Storage::Requests QueuedStorage::start(std::span<const RowRead> reads) {
  const std::string where = layout_.num_files == 1
                                ? path(0)
                                : concat(path(0), " and ", layout_.num_files - 1, " more files");
  Requests requests;
  for (const RowRead& read : reads) {
    requests.push_back(std::make_shared<Request>(
        read.output.data(), concat(engine_, ": reading ", read.rows.size(), " rows of ", where),
        read.on_gpu));
  }
  const MergeRule rule{block_bytes(), max_read_bytes(), options_.max_gap_bytes};
  auto group =
      std::make_shared<ReadGroup>(plan_reads(reads, layout_, rule), requests, stats_.outstanding);
  if (!group->empty()) queue_.push(std::move(group));
  return requests;
}

uint64_t QueuedStorage::now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace lsm
