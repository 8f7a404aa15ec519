// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/read_worker.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/io/nvme/protocol/status.h"
#include "kernels/io/read_slots.h"

namespace lsm::nvme {
namespace {

// Depth of the completion queue per depth of the submission queue, where the controller allows it.
// The head doorbell is rung less often by the same factor.
constexpr uint32_t kCompletionFactor = 16;

// The queue is recreated when this fraction of its commands is lost.
constexpr size_t kLostShare = 4;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

ReadWorker::ReadWorker(Controller& controller, const WorkerOptions& options, ReadStats& stats,
                       FaultInjector& faults)
    : controller_(controller),
      options_(options),
      stats_(stats),
      faults_(faults),
      slots_(num_read_slots(options.depth)),
      landing_(options.gpu < 0 ? nullptr
                               : make_gpu_landing(options.gpu, options.command_timeout_secs)),
      buffers_(controller.transport(), slots_.size(), options.max_read_bytes, landing_.get()) {
  for (size_t i = slots_.size(); i > 0; --i) free_.push_back(static_cast<uint16_t>(i - 1));
  open();
}

ReadWorker::~ReadWorker() {
  queue_.reset();
  const auto error =
      std::make_exception_ptr(std::runtime_error("the storage engine was closed during the read"));
  for (Slot& slot : slots_) {
    if (slot.state == State::kInFlight) fail(slot, error);
  }
}

void ReadWorker::open() {
  QueueOptions queue;
  queue.depth = static_cast<uint32_t>(slots_.size()) + 1;
  queue.completion_depth = kCompletionFactor * queue.depth;
  std::unique_ptr<IoQueue> made = controller_.create_queue(options_.queue_id, queue);
  const uint32_t capacity = made->pair().capacity();
  check_argument(capacity >= slots_.size(), "queue_depth: ", controller_.name(),
                 " has queues of at most ", capacity + 1, " entries, too few for ", options_.depth,
                 " reads in flight and ", slots_.size() - options_.depth, " spare");
  queue_ = options_.make_queue(std::move(made), buffers_);
}

size_t ReadWorker::room() const {
  if (broken_) return options_.depth;  // whatever is added fails at once
  if (lost_ > 0 && lost_ >= options_.depth / kLostShare) return 0;
  const size_t in_use = std::min(options_.depth, in_flight_ + lost_ + added_.size());
  return std::min(free_.size(), options_.depth - in_use);
}

void ReadWorker::add(WorkerRead read) {
  if (broken_) {
    read.claim.group->fail(*read.claim.extent, broken_);
    return;
  }
  const uint16_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  const Extent& extent = *read.claim.extent;
  slot.state = State::kInFlight;
  slot.blocks = {read.space->id, extent.bytes / read.space->block_bytes,
                 static_cast<uint64_t>(extent.offset) / read.space->block_bytes};
  slot.read = std::move(read);
  added_.push_back(index);
}

void ReadWorker::submit() {
  if (added_.empty()) return;
  const uint64_t now = now_ns();
  reads_.clear();
  for (const uint16_t index : added_) {
    slots_[index].started_ns = now;
    reads_.push_back(buffer_read(index));
  }
  try {
    queue_->submit(reads_);  // there is room: as many entries as slots
  } catch (const std::exception& error) {
    give_up(error);
    return;
  }
  stats_.reads.fetch_add(static_cast<int64_t>(added_.size()), std::memory_order_relaxed);
  in_flight_ += added_.size();
  added_.clear();
}

BufferRead ReadWorker::buffer_read(uint16_t index) const {
  const Slot& slot = slots_[index];
  return {index, slot.blocks, slot.read.claim.extent->bytes};
}

bool ReadWorker::take() {
  if (!queue_ || broken_) return false;
  const uint64_t now = now_ns();
  ends_.clear();
  try {
    queue_->take(ends_);
  } catch (const std::exception& error) {
    give_up(error);
    return true;
  }
  for (const ReadEnd& read_end : ends_) end(read_end, now);
  return !ends_.empty();
}

void ReadWorker::end(const ReadEnd& end, uint64_t now) {
  if (end.id >= slots_.size() || slots_[end.id].state == State::kFree) {
    return;  // a completion without a command; no buffer depends on it
  }
  Slot& slot = slots_[end.id];
  if (slot.state == State::kLost) {  // late, and its read has failed already
    --lost_;
    release(end.id);
    return;
  }
  const auto bytes = static_cast<int64_t>(slot.read.claim.extent->bytes);
  bool stalled = false;
  const int64_t result = faults_.apply(end.status == kSuccess ? bytes : -EIO, &stalled);
  if (stalled) return;  // as if the drive had lost it
  stats_.latency.add(now - slot.started_ns);
  --in_flight_;
  done_.push_back({end.id, end.status, result});
}

void ReadWorker::give_up(const std::exception& error) {
  broken_ = std::current_exception();
  deliver();  // completed reads are valid
  for (Slot& slot : slots_) {
    if (slot.state != State::kInFlight) continue;
    fail(slot,
         std::make_exception_ptr(std::runtime_error(concat(describe(slot), ": ", error.what()))));
    slot.state = State::kLost;  // the controller may still write to its buffer
  }
  added_.clear();
  in_flight_ = 0;
}

void ReadWorker::deliver() {
  for (const Done& done : done_) {
    Slot& slot = slots_[done.slot];
    const Extent& extent = *slot.read.claim.extent;
    if (done.result == static_cast<int64_t>(extent.bytes)) {
      stats_.bytes_read.fetch_add(done.result, std::memory_order_relaxed);
      if (landing_) {
        slot.read.claim.group->begin(extent, buffers_.data(done.slot), copies_);
        landed_.push_back(done.slot);
        continue;
      }
      slot.read.claim.group->complete(extent, buffers_.data(done.slot));
    } else {
      fail(slot, error_of(slot, done));
    }
    release(done.slot);
  }
  done_.clear();
  if (landing_) copy_landed();
}

void ReadWorker::copy_landed() {
  const std::vector<PieceCopy> copies = std::exchange(copies_, {});
  const std::vector<uint16_t> landed = std::exchange(landed_, {});
  try {
    landing_->copy(copies);
  } catch (const std::exception& error) {
    for (const PieceCopy& copy : copies) copy.request->fail_copy(std::current_exception());
    for (const uint16_t slot : landed) release(slot);
    give_up(error);
    return;
  }
  for (const PieceCopy& copy : copies) copy.request->end();
  for (const uint16_t slot : landed) release(slot);
}

void ReadWorker::expire() {
  if (broken_) return;
  const uint64_t now = now_ns();
  const auto limit = static_cast<uint64_t>(options_.command_timeout_secs * 1e9);
  for (Slot& slot : slots_) {
    if (slot.state != State::kInFlight || now - slot.started_ns < limit) continue;
    fail(slot,
         std::make_exception_ptr(TimeoutError(concat(describe(slot), " did not complete within ",
                                                     options_.command_timeout_secs, " s"))));
    slot.state = State::kLost;
    --in_flight_;
    ++lost_;
  }
  if (lost_ > 0 && in_flight_ == 0 && lost_ >= options_.depth / kLostShare) renew();
}

void ReadWorker::renew() {
  queue_.reset();
  try {
    open();
  } catch (...) {
    broken_ = std::current_exception();
    return;
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state == State::kLost) release(static_cast<uint16_t>(i));
  }
  lost_ = 0;
}

void ReadWorker::fail(Slot& slot, std::exception_ptr error) {
  stats_.errors.fetch_add(1, std::memory_order_relaxed);
  slot.read.claim.group->fail(*slot.read.claim.extent, error);
  slot.read.claim = {};
}

void ReadWorker::release(uint16_t index) {
  slots_[index].state = State::kFree;
  slots_[index].read.claim = {};
  free_.push_back(index);
}

std::exception_ptr ReadWorker::error_of(const Slot& slot, const Done& done) const {
  std::string why = describe_status(done.status);
  int error_number = EIO;
  if (done.status == kSuccess) {  // injected
    error_number = done.result < 0 ? static_cast<int>(-done.result) : EIO;
    why = done.result < 0 ? std::strerror(error_number) : concat("only ", done.result, " bytes");
  }
  return std::make_exception_ptr(
      SystemError(error_number, *slot.read.path, concat(describe(slot), ": ", why)));
}

std::string ReadWorker::describe(const Slot& slot) const {
  const Extent& extent = *slot.read.claim.extent;
  return concat(controller_.name(), ": NVMe read of ", slot.blocks.num_blocks, " blocks at LBA ",
                slot.blocks.lba, " of namespace ", slot.blocks.namespace_id, " (", extent.bytes,
                " bytes at offset ", extent.offset, "; queue ", options_.queue_id, ", command ",
                &slot - slots_.data(), ")");
}

}  // namespace lsm::nvme
