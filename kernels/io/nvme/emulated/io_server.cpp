// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/emulated/io_server.h"

#include <algorithm>
#include <cstring>

namespace lsm::nvme {
namespace {

/// Streams of random draws, so that one kind of fault does not shift another.
enum Stream : uint64_t { kErrors, kWhichError, kLosses, kDelays, kOrder, kNextRound, kLostData };

constexpr uint16_t kInjected[] = {kUnrecoveredReadError, kInternalError, kDataTransferError,
                                  kLbaOutOfRange, 0x082};

uint64_t lba_of(const Command& command) {
  return command.dwords[10] | static_cast<uint64_t>(command.dwords[11]) << 32;
}

}  // namespace

void IoServer::execute(SubmissionQueue& queue, const Command& command) {
  counters_.reads.fetch_add(1, std::memory_order_relaxed);
  const auto id = static_cast<uint16_t>(command.dwords[0] >> 16);
  if (queue.in_flight[id]) {
    complete(queue, id, kCommandIdConflict | kStatusDoNotRetry);
    return;
  }
  queue.in_flight[id] = true;
  if (options_.faults.any()) {
    misbehave(queue, command);
  } else {
    complete(queue, id, perform(command));
  }
}

uint16_t IoServer::check(const Command& command) const {
  const uint32_t* dwords = command.dwords;
  const uint32_t opcode = dwords[0] & 0xff;
  if (opcode > kOpcodeRead) return kInvalidOpcode | kStatusDoNotRetry;
  // Stricter than most controllers: reserved fields, and fields of unused features, must be zero,
  // so that an undefined dword is noticed.
  const bool plain = (dwords[0] & 0xff00) == 0 && dwords[2] == 0 && dwords[3] == 0 &&
                     dwords[4] == 0 && dwords[5] == 0 && (dwords[12] >> 16) == 0 &&
                     dwords[13] == 0 && dwords[14] == 0 && dwords[15] == 0;
  if (!plain) return kInvalidField | kStatusDoNotRetry;
  if (dwords[1] == 0 || dwords[1] > namespaces_.size()) {
    return kInvalidNamespace | kStatusDoNotRetry;
  }
  const EmulatedNamespace& space = namespaces_[dwords[1] - 1];
  if (opcode != kOpcodeRead && !space.source->writable()) {
    return kNamespaceWriteProtected | kStatusDoNotRetry;
  }
  if (opcode == kOpcodeFlush) return kSuccess;
  const uint64_t num_blocks = (dwords[12] & 0xffff) + 1;
  const uint64_t lba = lba_of(command);
  if (lba >= space.num_blocks() || num_blocks > space.num_blocks() - lba) {
    return kLbaOutOfRange | kStatusDoNotRetry;
  }
  const uint64_t most = uint64_t{kPageBytes} << options_.max_transfer_shift;
  if (options_.max_transfer_shift != 0 && num_blocks * space.block_bytes > most) {
    return kInvalidField | kStatusDoNotRetry;
  }
  return kSuccess;
}

uint16_t IoServer::perform(const Command& command) {
  segments_.clear();
  const uint16_t status = check(command);
  if (status != kSuccess) return status;
  const EmulatedNamespace& space = namespaces_[command.dwords[1] - 1];
  const uint32_t opcode = command.dwords[0] & 0xff;
  if (opcode == kOpcodeFlush) return space.source->flush() ? kSuccess : kWriteFault;
  const uint64_t bytes = ((command.dwords[12] & 0xffff) + uint64_t{1}) * space.block_bytes;
  const DataPointer data{command.dwords[6] | static_cast<uint64_t>(command.dwords[7]) << 32,
                         command.dwords[8] | static_cast<uint64_t>(command.dwords[9]) << 32};
  const uint16_t walked = walk_prps(memory_, data, bytes, segments_);
  if (walked != kSuccess) return walked;
  const uint64_t offset = lba_of(command) * space.block_bytes;
  if (opcode == kOpcodeWrite) {
    return space.source->write(offset, segments_) ? kSuccess : kWriteFault;
  }
  const bool there = space.source->read(offset, segments_);
  return there ? kSuccess : kUnrecoveredReadError;
}

void IoServer::misbehave(SubmissionQueue& queue, const Command& command) {
  const ControllerFaults& faults = options_.faults;
  const auto id = static_cast<uint16_t>(command.dwords[0] >> 16);
  if (num_commands_++ < faults.after) {
    complete(queue, id, perform(command));
    return;
  }
  const uint64_t counter = num_commands_ - 1 - faults.after;
  const bool is_read = (command.dwords[0] & 0xff) == kOpcodeRead;
  segments_.clear();
  const bool lost_data = is_read && draw(faults.seed, counter, kLostData) < faults.lost_data_rate;
  uint16_t status = lost_data ? check(command) : perform(command);
  if (status == kSuccess && draw(faults.seed, counter, kErrors) < faults.error_rate) {
    status = kInjected[static_cast<size_t>(draw(faults.seed, counter, kWhichError) *
                                           std::size(kInjected))];
    if (is_read) spoil();
  }
  if (draw(faults.seed, counter, kLosses) < faults.loss_rate) {
    counters_.losses.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const bool late = draw(faults.seed, counter, kDelays) < faults.delay_rate;
  if (!late && !faults.reorder) {
    complete(queue, id, status);
    return;
  }
  Clock::time_point due{};
  if (late) {
    due = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(faults.delay_secs));
  }
  held_.push_back({due, queue.id, id, status});
}

/// The buffer of a failed command has undefined contents.
void IoServer::spoil() {
  for (const Segment& segment : segments_) std::memset(segment.data, 0xbd, segment.bytes);
}

void IoServer::complete(SubmissionQueue& queue, uint16_t id, uint16_t status) {
  if (!post(queue, id, status)) held_.push_back({{}, queue.id, id, status});
}

bool IoServer::post(SubmissionQueue& queue, uint16_t id, uint16_t status) {
  CompletionQueue& answers = queues_.completion[queue.completion_queue];
  if (answers.full()) return false;
  if (status != kSuccess) counters_.errors.fetch_add(1, std::memory_order_relaxed);
  // The identifier of a conflict is still that of the command before.
  if ((status & kStatusCodeMask) != kCommandIdConflict) queue.in_flight[id] = false;
  answers.post(0, queue.id, queue.head, id, status);
  return true;
}

bool IoServer::post_held() {
  if (held_.empty()) return false;
  const ControllerFaults& faults = options_.faults;
  const uint64_t round = num_rounds_++;
  if (faults.reorder) {
    for (size_t i = held_.size(); i > 1; --i) {
      const auto j =
          static_cast<size_t>(draw(faults.seed + round, i, kOrder) * static_cast<double>(i));
      std::swap(held_[i - 1], held_[j]);
    }
  }
  const Clock::time_point now = Clock::now();
  size_t kept = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    const Held item = held_[i];
    SubmissionQueue& queue = queues_.submission[item.queue];
    const bool waits = faults.reorder && draw(faults.seed + round, i, kNextRound) < 0.25;
    if (item.due > now || waits || !post(queue, item.id, item.status)) held_[kept++] = item;
  }
  held_.resize(kept);
  return kept > 0;
}

void IoServer::forget(uint16_t queue) {
  std::erase_if(held_, [&](const Held& item) { return queue == 0 || item.queue == queue; });
}

}  // namespace lsm::nvme
