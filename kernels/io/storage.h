// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/io/fault_injector.h"
#include "kernels/io/feature_files.h"
#include "kernels/io/read_stats.h"
#include "kernels/io/request.h"
#include "kernels/io/row_layout.h"

namespace lsm {

/// Options of all engines; each uses those that concern it.
struct EngineOptions {
  int queue_depth = 128;                  // reads in flight per ring (io_uring) or queue (nvme)
  int num_threads = 1;                    // rings, queues, pread threads or copying threads
  int64_t max_read_bytes = 32 << 10;      // longest single read
  int64_t max_gap_bytes = 0;              // longest run of unrequested bytes within a read
  DirectMode direct = DirectMode::kAuto;  // bypass the page cache
};

/// Reads rows of a store's feature files. Read-only by type. Any thread may call submit(), and any
/// number of requests may be in flight. Results do not depend on the engine.
class Storage {
 public:
  virtual ~Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  using Requests = std::vector<std::shared_ptr<Request>>;

  /// Starts reading the rows of all `reads`, which are planned together. Returns a request for
  /// each. Throws ArgumentError for a row or position out of range or an output of the wrong size.
  /// Does not block, except for the synchronous engines memory and mmap.
  ///
  /// The outputs must stay valid until the request's wait() or cancel() returns. Rows of an output
  /// that are no position are unchanged. For repeated positions the output gets any of the rows, or
  /// a mix.
  Requests submit(std::span<const RowRead> reads);

  /// plan_contiguous_reads() for a caller that reads by other means. Takes the rows and positions
  /// of `read`, and `out_bytes` in place of its output. Throws as submit().
  std::vector<Piece> contiguous_reads(const RowRead& read, size_t out_bytes,
                                      int64_t max_read_bytes) const;

  const RowLayout& layout() const { return layout_; }
  ReadStats& stats() { return stats_; }
  FaultInjector& faults() { return faults_; }
  /// Remarks about the engine, such as fallbacks, for the log.
  virtual std::vector<std::string> notes() const { return {}; }
  virtual int64_t block_bytes() const { return 4096; }
  virtual bool direct() const { return false; }
  /// The GPU whose memory outputs may be; -1: outputs are host memory.
  virtual int gpu() const { return -1; }

 protected:
  Storage(std::string engine, const RowLayout& layout)
      : engine_(std::move(engine)), layout_(layout) {}

  /// submit() without the checks. Precondition: `reads` is not empty.
  virtual Requests start(std::span<const RowRead> reads) = 0;

  const std::string engine_;
  const RowLayout layout_;
  ReadStats stats_;
  FaultInjector faults_;

 private:
  void check(const RowRead& read, size_t out_bytes) const;
};

}  // namespace lsm
