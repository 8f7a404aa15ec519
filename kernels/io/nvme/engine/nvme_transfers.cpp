// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/nvme_transfers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/io/nvme/engine/transports.h"
#include "kernels/io/nvme/protocol/status.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/contiguous.h"

namespace lsm::nvme {
namespace {

const RowLayout kAnySize{0, kPageBytes, kPageBytes, 1};

OpenTransports open_target(const std::string& target, TransportOptions options, bool writable) {
  options.emulated.writable = writable;
  return open_transports(options, {target}, kAnySize);
}

}  // namespace

NvmeTransfers::NvmeTransfers(std::string target, const TransferOptions& options,
                             const NvmeOptions& nvme)
    : NvmeTransfers(target, open_target(target, nvme.transport, !options.read_only), options,
                    nvme.command_timeout_secs) {}

NvmeTransfers::NvmeTransfers(std::string target, OpenTransports opened,
                             const TransferOptions& options, double command_timeout_secs)
    : Transfers("nvme", std::move(target), options), command_timeout_secs_(command_timeout_secs) {
  controller_ =
      std::make_unique<Controller>(std::move(opened.transports.front()), command_timeout_secs_);
  space_ = controller_->identify_namespace(opened.namespaces.front().namespace_id);
  const auto most = static_cast<int64_t>(controller_->info().max_transfer_bytes);
  chunk_bytes_ = std::min(options.chunk_bytes, most / block_bytes() * block_bytes());
  check_argument(chunk_bytes_ > 0, controller_->name(), " transfers at most ", most,
                 " bytes at once; expected at least ", block_bytes());
  slots_.resize(static_cast<size_t>(options.queue_depth));
  buffers_ = std::make_unique<ReadBuffers>(controller_->transport(), slots_.size(),
                                           static_cast<size_t>(chunk_bytes_));
  controller_->set_num_queues(1);
  const auto depth = static_cast<uint32_t>(slots_.size()) + 1;
  queue_ = controller_->create_queue(1, {.depth = depth, .completion_depth = 4 * depth});
  check_argument(queue_->pair().capacity() >= slots_.size(),
                 "storage.queue_depth: ", controller_->name(), " has queues of at most ",
                 queue_->pair().capacity() + 1, " entries");
}

NvmeTransfers::~NvmeTransfers() {
  queue_.reset();  // after which no command writes to a buffer
}

int64_t NvmeTransfers::block_bytes() const {
  return std::max<int64_t>(kPageBytes, space_.block_bytes);
}

void NvmeTransfers::submit(const std::vector<uint16_t>& added) {
  submit_batch(queue_->pair(), static_cast<uint32_t>(added.size()), [&](uint32_t i) {
    const uint16_t slot = added[i];
    const SwapChunk& chunk = slots_[slot];
    const auto bytes = static_cast<uint64_t>(chunk.bytes_left());
    if (chunk.writes) std::memcpy(buffers_->data(slot), chunk.address(), bytes);
    const BlockRange blocks{space_.id, static_cast<uint32_t>(bytes / space_.block_bytes),
                            static_cast<uint64_t>(chunk.position()) / space_.block_bytes};
    return TransferCommand::make(chunk.writes, slot, blocks, buffers_->pointer(slot, bytes));
  });
  count_batch(static_cast<int64_t>(added.size()));
}

bool NvmeTransfers::end(SwapChunks& chunks, uint16_t slot, uint16_t status, bool* is_lost) {
  SwapChunk& chunk = slots_[slot];
  const int64_t bytes = chunk.bytes_left();
  if (status != kSuccess) {
    chunks.fail(std::make_exception_ptr(
        SystemError(EIO, target_,
                    concat(chunk.writes ? "write" : "read", " of ", bytes, " bytes at offset ",
                           chunk.position(), ": ", describe_status(status)))));
  } else if (!chunk.writes) {
    std::memcpy(chunk.address(), buffers_->data(slot), static_cast<size_t>(bytes));
  }
  const Next next = complete(chunks, chunk, status == kSuccess ? bytes : -EIO);
  *is_lost = next == Next::kLost;
  return next == Next::kAgain;
}

void NvmeTransfers::run(SwapChunks& chunks, const Deadline& deadline) {
  const std::lock_guard lock(mutex_);
  std::vector<uint16_t> added;
  int64_t next = 0;
  size_t in_flight = 0;
  const auto start = [&](uint16_t slot) {
    if (next == chunks.count() || chunks.failed()) return;
    slots_[slot] = chunks.start(next++);
    added.push_back(slot);
    ++in_flight;
  };
  for (size_t slot = 0; slot < slots_.size(); ++slot) start(static_cast<uint16_t>(slot));
  Backoff backoff;
  std::vector<std::pair<uint16_t, uint16_t>> ends;
  while (in_flight > 0) {
    if (!added.empty()) submit(added);
    added.clear();
    ends.clear();
    take_completions(queue_->pair(), queue_->pair().depth, [&](const Completion& entry) {
      if (entry.command_id() < slots_.size()) ends.emplace_back(entry.command_id(), entry.status());
    });
    for (const auto& [slot, status] : ends) {
      bool is_lost = false;
      if (end(chunks, slot, status, &is_lost)) {
        added.push_back(slot);
      } else if (!is_lost) {
        --in_flight;
        start(slot);
      }
    }
    if (!ends.empty()) {
      backoff.reset();
      continue;
    }
    if (deadline.passed()) throw TimeoutError("");
    backoff.pause();
  }
}

void NvmeTransfers::sync() {
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<uint16_t>(slots_.size());  // of no transfer that may still end
  submit_batch(queue_->pair(), 1, [&](uint32_t) { return TransferCommand::flush(id, space_.id); });
  const Deadline deadline(command_timeout_secs_);
  Backoff backoff;
  bool done = false;
  uint16_t status = kSuccess;
  while (!done) {
    take_completions(queue_->pair(), 1, [&](const Completion& entry) {
      if (entry.command_id() != id) return;
      done = true;
      status = entry.status();
    });
    if (!done && deadline.passed()) {
      throw TimeoutError(concat(target_, ": a flush did not end in ", command_timeout_secs_, " s"));
    }
    if (!done) backoff.pause();
  }
  if (status != kSuccess) {
    throw SystemError(EIO, target_, concat("flush: ", describe_status(status)));
  }
}

}  // namespace lsm::nvme
