// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/controller/controller.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/deadline.h"
#include "kernels/io/nvme/controller/admin_queue.h"

namespace lsm::nvme {
namespace {

constexpr uint32_t kGone = 0xffffffff;  // the value that a missing function reads as

template <class T>
T field(const std::byte* data, size_t offset) {
  T value;
  std::memcpy(&value, data + offset, sizeof(T));
  return value;
}

std::string text(const std::byte* data, size_t offset, size_t length) {
  std::string result(reinterpret_cast<const char*>(data) + offset, length);
  result.erase(std::min(result.find('\0'), result.size()));
  result.erase(result.find_last_not_of(' ') + 1);
  return result;
}

}  // namespace

Controller::Controller(std::unique_ptr<Transport> transport, double timeout_secs)
    : transport_(std::move(transport)), name_(transport_->name()), timeout_secs_(timeout_secs) {
  check_capabilities();
  reset();
  enable();
  try {
    identify();
  } catch (...) {
    disable_quietly();
    throw;
  }
}

Controller::~Controller() {
  try {
    shut_down();
  } catch (const std::exception&) {
    // It does not answer any more; the next user resets it.
  }
}

void Controller::check_capabilities() {
  const uint32_t version = read_register(kVersion);
  capabilities_.raw = read_register64(kCapabilities);
  if (version == kGone || version == 0 || capabilities_.raw == 0) {
    throw std::runtime_error(concat(name_, ": this is no NVMe controller, or it does not respond ",
                                    "(version register ", version, "); see `lsm doctor`"));
  }
  const auto require = [&](bool holds, const auto&... what) {
    if (!holds) throw std::runtime_error(concat(name_, ": ", what...));
  };
  require(capabilities_.nvm_command_set(), "the controller has no NVM command set");
  require(capabilities_.min_page_bytes() <= kPageBytes, "the controller's smallest page is ",
          capabilities_.min_page_bytes(), " bytes, and we use ", kPageBytes);
  info_.version = version;
  info_.max_queue_entries = capabilities_.max_queue_entries();
}

void Controller::reset() {
  const uint32_t configuration = read_register(kConfiguration);
  write_register(kConfiguration, configuration & ~kConfigurationEnable);
  await_status(kStatusReady, 0, "its reset (CSTS.RDY = 0)");
  admin_.reset();
}

void Controller::enable() {
  transport_->allow_dma();
  admin_ = std::make_unique<AdminQueue>(*transport_, name_, capabilities_.doorbell_stride_bytes(),
                                        timeout_secs_);
  write_register(kAdminQueueAttributes, (AdminQueue::kDepth - 1) << 16 | (AdminQueue::kDepth - 1));
  write_register64(kAdminSubmissionBase, admin_->submission_address());
  write_register64(kAdminCompletionBase, admin_->completion_address());
  write_register(kConfiguration, kConfigurationEnable | kConfigurationEntrySizes);
  await_status(kStatusReady, kStatusReady, "its start (CSTS.RDY = 1)");
}

void Controller::identify() {
  const std::byte* data = admin_->identify_controller();
  info_.serial = text(data, 4, 20);
  info_.model = text(data, 24, 40);
  info_.firmware = text(data, 64, 8);
  const auto max_transfer_shift = field<uint8_t>(data, 77);
  info_.num_namespaces = field<uint32_t>(data, 516);
  // A command names at most 65,536 blocks, and the smallest have 512 bytes.
  constexpr uint64_t kMostPerCommand = uint64_t{65'536} * 512;
  info_.max_transfer_bytes = kMostPerCommand;
  if (max_transfer_shift != 0 && max_transfer_shift < 32) {
    info_.max_transfer_bytes =
        std::min(kMostPerCommand, capabilities_.min_page_bytes() << max_transfer_shift);
  }
}

NamespaceInfo Controller::identify_namespace(uint32_t id) {
  check_argument(id >= 1 && id <= info_.num_namespaces, name_, ": expected a namespace of 1 to ",
                 info_.num_namespaces, ", got ", id);
  std::lock_guard lock(admin_mutex_);
  const std::byte* data = admin_->identify_namespace(id);
  NamespaceInfo result{id, field<uint64_t>(data, 0), 0};
  check_argument(result.num_blocks > 0, name_, ": namespace ", id, " is not active");
  const auto format_index = field<uint8_t>(data, 26) & 0xf;
  const auto format = field<uint32_t>(data, 128 + 4 * static_cast<size_t>(format_index));
  const uint32_t metadata_bytes = format & 0xffff;
  const uint32_t block_shift = format >> 16 & 0xff;
  check_argument(block_shift >= 9 && block_shift <= 12, name_, ": namespace ", id,
                 " has blocks of 2^", block_shift,
                 " bytes; expected 512 to 4096: format it with one of those");
  check_argument(metadata_bytes == 0, name_, ": namespace ", id, " has ", metadata_bytes,
                 " bytes of metadata per block; format it with none");
  result.block_bytes = 1u << block_shift;
  return result;
}

uint32_t Controller::set_num_queues(uint32_t wanted) {
  check_argument(wanted >= 1 && wanted <= 65'535, "queues: expected 1 to 65535, got ", wanted);
  std::lock_guard lock(admin_mutex_);
  return admin_->set_num_queues(wanted);
}

std::unique_ptr<IoQueue> Controller::create_queue(uint16_t id, const QueueOptions& options) {
  const uint32_t stride = capabilities_.doorbell_stride_bytes();
  check_argument(id >= 1 && head_doorbell_offset(id, stride) + 4 <= transport_->register_bytes(),
                 name_, ": queue ", id, " has no doorbell in the ", transport_->register_bytes(),
                 " bytes of registers");
  const uint32_t most = std::bit_floor(info_.max_queue_entries);
  QueueOptions allowed;
  allowed.depth = std::min(most, std::bit_ceil(std::max(2u, options.depth)));
  allowed.completion_depth =
      std::clamp(std::bit_ceil(options.completion_depth), allowed.depth, most);
  return std::unique_ptr<IoQueue>(new IoQueue(*this, id, allowed));
}

void Controller::shut_down() {
  if (shut_down_ || disabled_) return;
  shut_down_ = true;
  const uint32_t configuration = read_register(kConfiguration);
  write_register(kConfiguration,
                 (configuration & ~kConfigurationShutdownMask) | kConfigurationShutdownNormal);
  await_status(kStatusShutdownMask, kStatusShutdownDone, "its shut-down (CSTS.SHST = 2)");
  // Disabled, it is as its driver finds it after power-on.
  write_register(kConfiguration, 0);
  await_status(kStatusReady, 0, "its reset after the shut-down (CSTS.RDY = 0)");
}

void Controller::disable_quietly() noexcept {
  disabled_ = true;
  try {
    write_register(kConfiguration, 0);
    await_status(kStatusReady, 0, "its reset");
  } catch (const std::exception&) {
    // Nothing else can be done here; the caller gets the error that led here.
  }
}

void Controller::await_status(uint32_t mask, uint32_t value, const char* what) {
  const double seconds = std::max(timeout_secs_, capabilities_.timeout_secs());
  const Deadline deadline(seconds);
  Backoff backoff;
  for (;;) {
    const uint32_t status = read_register(kStatusRegister);
    if (status == kGone) throw std::runtime_error(concat(name_, ": the controller has gone"));
    if ((status & mask) == value) return;
    // A reset ends a fatal state, so a wait for a reset ignores it.
    if ((status & kStatusFatal) != 0 && value != 0) {
      throw std::runtime_error(
          concat(name_, ": the controller reports a fatal state (CSTS.CFS) instead of ", what));
    }
    if (deadline.passed()) {
      throw TimeoutError(concat(name_, ": the controller did not report ", what, " within ",
                                seconds, " s; its status register is ", status));
    }
    backoff.pause();
  }
}

uint32_t Controller::read_register(uint32_t offset) const {
  return load_acquire(transport_->registers()[offset / 4]);
}

void Controller::write_register(uint32_t offset, uint32_t value) {
  write_doorbell(transport_->registers() + offset / 4, value);
}

uint64_t Controller::read_register64(uint32_t offset) const {
  return read_register(offset) | static_cast<uint64_t>(read_register(offset + 4)) << 32;
}

void Controller::write_register64(uint32_t offset, uint64_t value) {
  write_register(offset, static_cast<uint32_t>(value));
  write_register(offset + 4, static_cast<uint32_t>(value >> 32));
}

}  // namespace lsm::nvme
