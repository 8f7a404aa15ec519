// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "kernels/core/deadline.h"
#include "kernels/io/fault_injector.h"
#include "kernels/io/swap_chunks.h"

namespace lsm {

struct TransferOptions {
  int queue_depth = 8;              // chunks in flight
  int64_t chunk_bytes = 2LL << 20;  // longest single transfer
  bool read_only = false;           // writes then fail
};

struct TransferStats {
  std::atomic<int64_t> bytes_read{0};
  std::atomic<int64_t> bytes_written{0};
  std::atomic<int64_t> short_transfers{0};
  std::atomic<int64_t> commands{0};   // nvme: put on the queue
  std::atomic<int64_t> doorbells{0};  // nvme: rung for them
};

/// Moves long blocks between memory and a file or drive, in chunks at a queue depth. Unlike
/// Storage, which reads rows, it writes too, and moves straight between the disk and the caller's
/// memory.
class Transfers {
 public:
  virtual ~Transfers() = default;
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Writes `swap.memory` to `swap.write_to`, then fills it from `swap.read_from`, each if given.
  /// Works chunk by chunk, so that reads start while writes run. Returns the checksums of both.
  /// Throws ArgumentError for unaligned arguments, SystemError after the transfers in flight have
  /// ended, TimeoutError after `timeout_secs`. After a TimeoutError the memory may still be written
  /// to until the engine is destroyed, and the engine refuses more work. Blocks; concurrent calls
  /// run one at a time.
  SwapSums swap(const Swap& swap, double timeout_secs);
  /// Blocks until all writes are durable.
  virtual void sync() = 0;

  virtual bool direct() const { return true; }
  /// Unit of offsets, lengths and addresses.
  virtual int64_t block_bytes() const = 0;
  /// Size of the file or drive.
  virtual int64_t num_bytes() const = 0;
  const TransferStats& stats() const { return stats_; }
  FaultInjector& faults() { return faults_; }

 protected:
  /// `target`: the path of the file or drive, for messages.
  Transfers(std::string engine, std::string target, const TransferOptions& options);

  /// Longest single transfer.
  virtual int64_t chunk_bytes() const { return options_.chunk_bytes; }
  /// Moves all chunks. Throws as swap() does.
  virtual void run(SwapChunks& chunks, const Deadline& deadline) = 0;
  enum class Next { kEnd, kAgain, kLost };
  /// The next step after a transfer that returned `result` (bytes, or -errno): end the chunk,
  /// submit it again, or ignore the completion as if the disk had lost it.
  Next complete(SwapChunks& chunks, SwapChunk& chunk, int64_t result);
  /// Counts `commands` that one doorbell was rung for.
  void count_batch(int64_t commands);

  const std::string engine_;
  const std::string target_;
  const TransferOptions options_;

 private:
  std::mutex mutex_;
  bool given_up_ = false;
  TransferStats stats_;
  FaultInjector faults_;
};

}  // namespace lsm
