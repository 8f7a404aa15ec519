// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "kernels/io/nvme/engine/worker_queue.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/contiguous.h"

namespace lsm::nvme {

/// A queue pair that the calling thread operates.
class HostQueue final : public WorkerQueue {
 public:
  HostQueue(std::unique_ptr<IoQueue> queue, const ReadBuffers& buffers)
      : queue_(std::move(queue)), buffers_(buffers) {}

  static std::unique_ptr<WorkerQueue> make(std::unique_ptr<IoQueue> queue,
                                           const ReadBuffers& buffers) {
    return std::make_unique<HostQueue>(std::move(queue), buffers);
  }

  /// With one doorbell.
  void submit(std::span<const BufferRead> reads) override {
    submit_batch(queue_->pair(), static_cast<uint32_t>(reads.size()), [&](uint32_t i) {
      const BufferRead& read = reads[i];
      return ReadCommand::make(read.id, read.blocks, buffers_.pointer(read.id, read.bytes));
    });
  }

  void take(std::vector<ReadEnd>& ends) override {
    take_completions(queue_->pair(), queue_->pair().depth, [&](const Completion& entry) {
      ends.push_back({entry.command_id(), entry.status()});
    });
  }

 private:
  const std::unique_ptr<IoQueue> queue_;
  const ReadBuffers& buffers_;
};

}  // namespace lsm::nvme
