// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/io/fault_injector.h"
#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/host_queue.h"
#include "kernels/io/read_queue.h"
#include "kernels/io/read_stats.h"

namespace lsm::nvme {

struct WorkerOptions {
  size_t depth = 128;  // commands in flight
  size_t max_read_bytes = 32 << 10;
  double command_timeout_secs = 10.0;
  uint16_t queue_id = 1;
  WorkerQueueMaker make_queue = HostQueue::make;
  int gpu = -1;  // in whose memory reads land; -1: the host's
};

/// A read and the place of its bytes.
struct WorkerRead {
  Claim claim;
  const NamespaceInfo* space;
  const std::string* path;  // for messages
};

/// Reads of one worker thread from one controller: a queue pair, and a buffer for each command in
/// flight. For one thread. A command that does not complete in time fails. Its buffer and
/// identifier are set aside, since the controller may still use them; when there are too many, the
/// queue is recreated, which ends them. If the queue itself fails, which one that a GPU operates
/// may, all reads fail.
class ReadWorker {
 public:
  ReadWorker(Controller& controller, const WorkerOptions& options, ReadStats& stats,
             FaultInjector& faults);
  /// Ends the commands in flight; their reads fail.
  ~ReadWorker();
  ReadWorker(const ReadWorker&) = delete;
  ReadWorker& operator=(const ReadWorker&) = delete;

  /// The number of reads that may be added now.
  size_t room() const;
  bool idle() const { return in_flight_ == 0 && added_.empty(); }
  void add(WorkerRead read);
  /// Submits the added reads with one doorbell.
  void submit();
  /// Takes the completions that have arrived. Returns true if there were any.
  bool take();
  /// Delivers the rows of the taken completions.
  void deliver();
  /// Fails the commands that have been in flight for too long.
  void expire();

 private:
  enum class State { kFree, kInFlight, kLost };
  struct Slot {
    State state = State::kFree;
    WorkerRead read;
    BlockRange blocks;
    uint64_t started_ns = 0;
  };
  struct Done {
    uint16_t slot;
    uint16_t status;
    int64_t result;  // bytes, or -errno, after the fault injector
  };

  void open();
  void renew();
  void copy_landed();
  void fail(Slot& slot, std::exception_ptr error);
  void release(uint16_t index);
  /// Fails all reads, in flight or added later, with `error`. Precondition: `error` is being
  /// handled.
  void give_up(const std::exception& error);
  BufferRead buffer_read(uint16_t index) const;
  void end(const ReadEnd& end, uint64_t now);
  std::exception_ptr error_of(const Slot& slot, const Done& done) const;
  std::string describe(const Slot& slot) const;

  Controller& controller_;
  const WorkerOptions options_;
  ReadStats& stats_;
  FaultInjector& faults_;
  std::vector<Slot> slots_;
  const std::unique_ptr<GpuLanding> landing_;  // null: reads land in host memory
  ReadBuffers buffers_;
  std::unique_ptr<WorkerQueue> queue_;
  std::vector<uint16_t> free_;
  std::vector<uint16_t> added_;
  std::vector<BufferRead> reads_;
  std::vector<ReadEnd> ends_;
  std::vector<Done> done_;
  // With a landing_: completed reads whose pieces are to be copied.
  std::vector<uint16_t> landed_;
  std::vector<PieceCopy> copies_;
  size_t in_flight_ = 0;
  size_t lost_ = 0;
  std::exception_ptr broken_;  // the reason why the queue takes no more reads
};

}  // namespace lsm::nvme
