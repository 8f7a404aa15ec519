// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/read_buffers.h"

namespace lsm::nvme {

/// A read into the buffer whose index is the command's identifier.
struct BufferRead {
  uint16_t id;
  BlockRange blocks;
  uint32_t bytes;  // of the blocks
};

struct ReadEnd {
  uint16_t id;
  uint16_t status;
};

/// A worker's queue pair, operated by this thread (host_queue.h) or by a GPU (gpu_queue.h). For one
/// thread. Destroying it deletes the queue, which ends its commands.
class WorkerQueue {
 public:
  virtual ~WorkerQueue() = default;
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  /// Submits `reads`; at most the queue's capacity may be in flight. Does not wait for the drive.
  /// The queue does not recover from errors that this and take() throw.
  virtual void submit(std::span<const BufferRead> reads) = 0;
  /// Appends the completions that have arrived. Their identifiers may be ones that nobody
  /// submitted.
  virtual void take(std::vector<ReadEnd>& ends) = 0;

 protected:
  WorkerQueue() = default;
};

/// Makes a WorkerQueue of a queue pair. The buffers outlive it.
using WorkerQueueMaker =
    std::function<std::unique_ptr<WorkerQueue>(std::unique_ptr<IoQueue>, const ReadBuffers&)>;

}  // namespace lsm::nvme
