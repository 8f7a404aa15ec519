// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/emulated/emulated_controller.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/deadline.h"
#include "kernels/core/start_thread.h"

namespace lsm::nvme {
namespace {

// Commands fetched at once: their cache lines arrive together, and the host sees the first
// completions before the last command is executed.
constexpr uint32_t kBurst = 16;

}  // namespace

EmulatedController::EmulatedController(const ControllerOptions& options,
                                       std::vector<EmulatedNamespace> namespaces)
    : options_(options),
      namespaces_(std::move(namespaces)),
      register_memory_(register_bytes()),
      registers_(reinterpret_cast<uint32_t*>(register_memory_.data())),
      memory_(std::make_shared<DmaSpace>()),
      admin_(options_, *memory_, namespaces_, queues_, registers_),
      reads_(options_, *memory_, namespaces_, queues_, counters_) {
  queues_.submission.resize(options.num_queues + 1);
  queues_.completion.resize(options.num_queues + 1);
  registers_[kCapabilities / 4] = (options.max_queue_entries - 1) | 1u << 16 | 1u << 24;
  registers_[kCapabilities / 4 + 1] = options.doorbell_stride_shift | 1u << 5;
  registers_[kVersion / 4] = 0x00010400;
  thread_ = start_thread([this] { run(); });
}

EmulatedController::~EmulatedController() {
  stopping_.store(true);
  thread_.join();
}

void EmulatedController::run() {
  Backoff backoff;
  while (!stopping_.load(std::memory_order_relaxed)) {
    bool busy = obey_configuration();
    if (queues_.submission[0].exists()) {
      busy |= serve_admin_queue();
      for (uint32_t id = 1; id <= options_.num_queues; ++id) {
        SubmissionQueue& queue = queues_.submission[id];
        if (queue.exists()) busy |= serve_queue(queue);
      }
      busy |= reads_.post_held();
    }
    if (busy) {
      backoff.reset();
    } else {
      backoff.pause();
    }
  }
}

bool EmulatedController::obey_configuration() {
  const uint32_t configuration = load_acquire(registers_[kConfiguration / 4]);
  if (configuration == configuration_) return false;
  const uint32_t before = configuration_;
  configuration_ = configuration;
  const bool enabled = (configuration & kConfigurationEnable) != 0;
  const bool was_enabled = (before & kConfigurationEnable) != 0;
  if (enabled && !was_enabled) start();
  if (!enabled && was_enabled) stop();
  if (enabled && (configuration & kConfigurationShutdownMask) != 0) {
    reads_.forget(0);
    store_release(registers_[kStatusRegister / 4], kStatusReady | kStatusShutdownDone);
  }
  return true;
}

void EmulatedController::start() {
  const auto address = [&](uint32_t offset) {
    return load_acquire(registers_[offset / 4]) |
           static_cast<uint64_t>(load_acquire(registers_[offset / 4 + 1])) << 32;
  };
  const uint32_t attributes = load_acquire(registers_[kAdminQueueAttributes / 4]);
  const uint32_t depth = (attributes & 0xfff) + 1;
  const uint32_t completion_depth = (attributes >> 16 & 0xfff) + 1;
  std::byte* const entries =
      memory_->translate_run(address(kAdminSubmissionBase), depth * sizeof(Command));
  std::byte* const answers =
      memory_->translate_run(address(kAdminCompletionBase), completion_depth * sizeof(Completion));
  const bool sizes_fit = (configuration_ >> 16 & 0xff) == (kConfigurationEntrySizes >> 16);
  const bool page_fits = (configuration_ >> 4 & 0x7f) == 0;  // command set 0, pages of 4 KiB
  if (options_.never_ready) return;
  if (entries == nullptr || answers == nullptr || !sizes_fit || !page_fits || depth < 2) {
    store_release(registers_[kStatusRegister / 4], kStatusFatal);
    return;
  }
  const uint32_t stride = 4u << options_.doorbell_stride_shift;
  SubmissionQueue& admin = queues_.submission[0];
  admin.entries = reinterpret_cast<const Command*>(entries);
  admin.depth = depth;
  admin.tail_doorbell = registers_ + tail_doorbell_offset(0, stride) / 4;
  CompletionQueue& completion = queues_.completion[0];
  completion.entries = reinterpret_cast<Completion*>(answers);
  completion.depth = completion_depth;
  completion.head_doorbell = registers_ + head_doorbell_offset(0, stride) / 4;
  store_release(*admin.tail_doorbell, 0u);
  store_release(*completion.head_doorbell, 0u);
  store_release(registers_[kStatusRegister / 4], kStatusReady);
}

void EmulatedController::stop() {
  reads_.forget(0);
  std::ranges::fill(queues_.submission, SubmissionQueue{});
  std::ranges::fill(queues_.completion, CompletionQueue{});
  store_release(registers_[kStatusRegister / 4], 0u);
}

bool EmulatedController::valid_tail(SubmissionQueue& queue, uint32_t tail) {
  if (tail < queue.depth) return true;
  // Reported once per value; a real controller sends an asynchronous event (5.2.1).
  if (tail != queue.seen_invalid_tail) counters_.invalid_doorbells.fetch_add(1);
  queue.seen_invalid_tail = tail;
  return false;
}

bool EmulatedController::serve_admin_queue() {
  SubmissionQueue& queue = queues_.submission[0];
  // The acquire orders our reading of entries after the host's writing of them.
  const uint32_t tail = load_acquire(*queue.tail_doorbell);
  if (!valid_tail(queue, tail) || tail == queue.head || queues_.completion[0].full()) return false;
  const Command command = queue.entries[queue.head];
  queue.head = (queue.head + 1) % queue.depth;
  const AdminServer::Answer answer = admin_.execute(command);
  const bool deletes_queue = (command.dwords[0] & 0xff) == 0x00 && answer.status == kSuccess;
  if (deletes_queue) reads_.forget(static_cast<uint16_t>(command.dwords[10] & 0xffff));
  queues_.completion[0].post(answer.result, 0, queue.head,
                             static_cast<uint16_t>(command.dwords[0] >> 16), answer.status);
  return true;
}

bool EmulatedController::serve_queue(SubmissionQueue& queue) {
  const uint32_t tail = load_acquire(*queue.tail_doorbell);
  if (!valid_tail(queue, tail) || tail == queue.head) return false;
  if (queues_.completion[queue.completion_queue].full()) return false;
  Command burst[kBurst];
  uint32_t count = 0;
  for (uint32_t at = queue.head; at != tail && count < kBurst; at = (at + 1) % queue.depth) {
    burst[count++] = queue.entries[at];
  }
  for (uint32_t i = 0; i < count; ++i) {
    queue.head = (queue.head + 1) % queue.depth;
    reads_.execute(queue, burst[i]);
  }
  return true;
}

}  // namespace lsm::nvme
