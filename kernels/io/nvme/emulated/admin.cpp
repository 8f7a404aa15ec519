// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/emulated/admin.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lsm::nvme {
namespace {

template <class T>
void put(std::byte* data, size_t offset, T value) {
  std::memcpy(data + offset, &value, sizeof(T));
}

void put_text(std::byte* data, size_t offset, size_t length, const char* text) {
  std::memset(data + offset, ' ', length);
  std::memcpy(data + offset, text, std::min(length, std::strlen(text)));
}

uint32_t queue_id(const Command& command) {
  return command.dwords[10] & 0xffff;
}

uint32_t queue_depth(const Command& command) {
  return (command.dwords[10] >> 16) + 1;
}

}  // namespace

AdminServer::Answer AdminServer::execute(const Command& command) {
  switch (command.dwords[0] & 0xff) {
    case 0x00:
      return {delete_submission_queue(command)};
    case 0x01:
      return {create_submission_queue(command)};
    case 0x04:
      return {delete_completion_queue(command)};
    case 0x05:
      return {create_completion_queue(command)};
    case 0x06:
      return {identify(command)};
    case 0x09:
      return set_features(command);
    default:
      return {kInvalidOpcode | kStatusDoNotRetry};
  }
}

uint16_t AdminServer::identify(const Command& command) {
  const uint64_t address = command.dwords[6] | static_cast<uint64_t>(command.dwords[7]) << 32;
  if (address % kPageBytes != 0) return kPrpOffsetInvalid;
  std::byte* const data = memory_.translate(address);
  if (data == nullptr) return kDataTransferError;
  const uint32_t structure = command.dwords[10] & 0xff;
  if (structure > 1) return kInvalidField | kStatusDoNotRetry;
  std::memset(data, 0, kPageBytes);
  if (structure == 1) {
    describe_controller(data);
    return kSuccess;
  }
  const uint32_t id = command.dwords[1];
  if (id == 0 || id > namespaces_.size()) return kInvalidNamespace | kStatusDoNotRetry;
  describe_namespace(namespaces_[id - 1], data);
  return kSuccess;
}

void AdminServer::describe_controller(std::byte* data) const {
  put_text(data, 4, 20, "0");
  put_text(data, 24, 40, "LSM-GNN emulated controller");
  put_text(data, 64, 8, "1");
  put(data, 77, static_cast<uint8_t>(options_.max_transfer_shift));
  put(data, 80, uint32_t{0x00010400});
  put(data, 512, uint8_t{0x66});  // submission entries of 64 bytes, at least and at most
  put(data, 513, uint8_t{0x44});  // completion entries of 16 bytes
  put(data, 516, static_cast<uint32_t>(namespaces_.size()));
}

void AdminServer::describe_namespace(const EmulatedNamespace& space, std::byte* data) const {
  for (const size_t offset : {0, 8, 16}) put(data, offset, space.num_blocks());
  // Two formats, so that reading the first instead of the current one is noticed.
  put(data, 25, uint8_t{1});
  put(data, 26, uint8_t{1});
  put(data, 128, uint32_t{11} << 16);
  put(data, 132, static_cast<uint32_t>(std::countr_zero(space.block_bytes)) << 16);
}

AdminServer::Answer AdminServer::set_features(const Command& command) {
  if ((command.dwords[10] & 0xff) != 0x07) return {kInvalidField | kStatusDoNotRetry};
  const uint32_t most = options_.num_queues - 1;
  const uint32_t submission = std::min(command.dwords[11] & 0xffff, most);
  const uint32_t completion = std::min(command.dwords[11] >> 16, most);
  return {kSuccess, submission | completion << 16};
}

uint16_t AdminServer::find_queue_memory(const Command& command, size_t entry_bytes,
                                        std::byte** memory) const {
  const uint32_t id = queue_id(command);
  if (id == 0 || id > options_.num_queues) return kInvalidQueueId;
  const uint32_t depth = queue_depth(command);
  if (depth < 2 || depth > options_.max_queue_entries) return kInvalidQueueSize;
  if ((command.dwords[11] & 1) == 0) return kInvalidField;  // CAP.CQR: contiguous queues only
  const uint64_t address = command.dwords[6] | static_cast<uint64_t>(command.dwords[7]) << 32;
  if (address % kPageBytes != 0) return kPrpOffsetInvalid;
  *memory = memory_.translate_run(address, depth * entry_bytes);
  return *memory == nullptr ? kDataTransferError : kSuccess;
}

uint16_t AdminServer::create_completion_queue(const Command& command) {
  std::byte* memory = nullptr;
  const uint16_t status = find_queue_memory(command, sizeof(Completion), &memory);
  if (status != kSuccess) return status;
  const uint32_t id = queue_id(command);
  CompletionQueue& queue = queues_.completion[id];
  if (queue.exists()) return kInvalidQueueId;
  queue = {};
  queue.entries = reinterpret_cast<Completion*>(memory);
  queue.depth = queue_depth(command);
  queue.head_doorbell =
      registers_ + head_doorbell_offset(id, 4u << options_.doorbell_stride_shift) / 4;
  store_release(*queue.head_doorbell, 0u);
  return kSuccess;
}

uint16_t AdminServer::create_submission_queue(const Command& command) {
  std::byte* memory = nullptr;
  const uint16_t status = find_queue_memory(command, sizeof(Command), &memory);
  if (status != kSuccess) return status;
  const uint32_t id = queue_id(command);
  const uint32_t completion_queue = command.dwords[11] >> 16;
  SubmissionQueue& queue = queues_.submission[id];
  if (queue.exists()) return kInvalidQueueId;
  if (completion_queue == 0 || completion_queue >= queues_.completion.size() ||
      !queues_.completion[completion_queue].exists()) {
    return kCompletionQueueInvalid;
  }
  queue = {};
  queue.entries = reinterpret_cast<const Command*>(memory);
  queue.depth = queue_depth(command);
  queue.id = static_cast<uint16_t>(id);
  queue.completion_queue = static_cast<uint16_t>(completion_queue);
  queue.in_flight.assign(1 << 16, false);
  queue.tail_doorbell =
      registers_ + tail_doorbell_offset(id, 4u << options_.doorbell_stride_shift) / 4;
  store_release(*queue.tail_doorbell, 0u);
  ++queues_.completion[completion_queue].num_submission_queues;
  return kSuccess;
}

uint16_t AdminServer::delete_completion_queue(const Command& command) {
  const uint32_t id = queue_id(command);
  if (id == 0 || id > options_.num_queues || !queues_.completion[id].exists()) {
    return kInvalidQueueId;
  }
  if (queues_.completion[id].num_submission_queues > 0) return kInvalidQueueDeletion;
  queues_.completion[id] = {};
  return kSuccess;
}

uint16_t AdminServer::delete_submission_queue(const Command& command) {
  const uint32_t id = queue_id(command);
  if (id == 0 || id > options_.num_queues || !queues_.submission[id].exists()) {
    return kInvalidQueueId;
  }
  --queues_.completion[queues_.submission[id].completion_queue].num_submission_queues;
  queues_.submission[id] = {};
  return kSuccess;
}

}  // namespace lsm::nvme
