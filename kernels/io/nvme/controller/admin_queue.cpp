// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/controller/admin_queue.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/core/deadline.h"
#include "kernels/io/nvme/protocol/status.h"
#include "kernels/io/nvme/queue/completion.h"

namespace lsm::nvme {
namespace {

enum AdminOpcode : uint32_t {
  kDeleteSubmissionQueue = 0x00,
  kCreateSubmissionQueue = 0x01,
  kDeleteCompletionQueue = 0x04,
  kCreateCompletionQueue = 0x05,
  kIdentify = 0x06,
  kSetFeatures = 0x09,
};

constexpr uint32_t kFeatureNumQueues = 0x07;
constexpr uint32_t kIdentifyNamespace = 0x00;
constexpr uint32_t kIdentifyController = 0x01;
constexpr uint32_t kPhysicallyContiguous = 1;  // interrupts stay off: we poll

void set_address(Command& command, uint64_t address) {
  command.dwords[6] = static_cast<uint32_t>(address);
  command.dwords[7] = static_cast<uint32_t>(address >> 32);
}

}  // namespace

AdminQueue::AdminQueue(Transport& transport, std::string name, uint32_t doorbell_stride_bytes,
                       double timeout_secs)
    : name_(std::move(name)),
      timeout_secs_(timeout_secs),
      submission_(transport.allocate(kDepth * sizeof(Command), DmaShape::kContiguous)),
      completion_(transport.allocate(kDepth * sizeof(Completion), DmaShape::kContiguous)),
      data_(transport.allocate(kPageBytes, DmaShape::kContiguous)) {
  uint32_t* registers = transport.registers();
  pair_.submission = reinterpret_cast<Command*>(submission_.data);
  pair_.completion = reinterpret_cast<Completion*>(completion_.data);
  pair_.tail_doorbell = registers + tail_doorbell_offset(0, doorbell_stride_bytes) / 4;
  pair_.head_doorbell = registers + head_doorbell_offset(0, doorbell_stride_bytes) / 4;
  pair_.state = &state_;
  pair_.depth = pair_.completion_depth = kDepth;
}

const std::byte* AdminQueue::identify_controller() {
  return identify(kIdentifyController, 0);
}

const std::byte* AdminQueue::identify_namespace(uint32_t namespace_id) {
  return identify(kIdentifyNamespace, namespace_id);
}

const std::byte* AdminQueue::identify(uint32_t structure, uint32_t namespace_id) {
  Command command{};
  command.dwords[0] = kIdentify;
  command.dwords[1] = namespace_id;
  set_address(command, data_.address(0));
  command.dwords[10] = structure;
  const bool of_namespace = structure == kIdentifyNamespace;
  execute(command, of_namespace ? concat("identify namespace ", namespace_id)
                                : std::string("identify controller"));
  return data_.data;
}

uint32_t AdminQueue::set_num_queues(uint32_t wanted) {
  Command command{};
  command.dwords[0] = kSetFeatures;
  command.dwords[10] = kFeatureNumQueues;
  command.dwords[11] = (wanted - 1) | (wanted - 1) << 16;
  const uint32_t granted = execute(command, concat("set the number of queues to ", wanted));
  return std::min({wanted, (granted & 0xffff) + 1, (granted >> 16) + 1});
}

void AdminQueue::create_completion_queue(const QueuePlace& place) {
  Command command{};
  command.dwords[0] = kCreateCompletionQueue;
  set_address(command, place.address);
  command.dwords[10] = place.id | (place.entries - 1) << 16;
  command.dwords[11] = kPhysicallyContiguous;
  execute(command, concat("create completion queue ", place.id, " of ", place.entries, " entries"));
}

void AdminQueue::create_submission_queue(const QueuePlace& place, uint16_t completion_queue) {
  Command command{};
  command.dwords[0] = kCreateSubmissionQueue;
  set_address(command, place.address);
  command.dwords[10] = place.id | (place.entries - 1) << 16;
  command.dwords[11] = kPhysicallyContiguous | static_cast<uint32_t>(completion_queue) << 16;
  execute(command, concat("create submission queue ", place.id, " of ", place.entries, " entries"));
}

void AdminQueue::delete_completion_queue(uint16_t id) {
  Command command{};
  command.dwords[0] = kDeleteCompletionQueue;
  command.dwords[10] = id;
  execute(command, concat("delete completion queue ", id));
}

void AdminQueue::delete_submission_queue(uint16_t id) {
  Command command{};
  command.dwords[0] = kDeleteSubmissionQueue;
  command.dwords[10] = id;
  execute(command, concat("delete submission queue ", id));
}

uint32_t AdminQueue::execute(const Command& request, const std::string& what) {
  const uint64_t position = state_.tickets;
  // Identifiers repeat late, so that the completion of an abandoned command is not mistaken for
  // that of a later one.
  const auto id = static_cast<uint16_t>(position & 0xffff);
  Command command = request;
  command.dwords[0] |= static_cast<uint32_t>(id) << 16;
  if (pair_.room(position) == 0) {
    throw std::runtime_error(concat(name_, ": cannot ", what, ": none of the last ",
                                    pair_.capacity(), " admin commands was answered"));
  }
  pair_.submission[position & (kDepth - 1)] = command;
  state_.tickets = position + 1;
  pair_.ring_tail(position + 1);
  const Completion answer = await(id, what);
  if (answer.status() != kSuccess) {
    throw std::runtime_error(
        concat(name_, ": cannot ", what, ": ", describe_status(answer.status())));
  }
  return answer.dwords[0];
}

Completion AdminQueue::await(uint16_t id, const std::string& what) {
  const Deadline deadline(timeout_secs_);
  Backoff backoff;
  for (;;) {
    bool answered = false;
    Completion answer{};
    take_completions(pair_, kDepth, [&](const Completion& entry) {
      if (entry.command_id() != id) return;
      answered = true;
      answer = entry;
    });
    if (answered) return answer;
    if (deadline.passed()) {
      throw TimeoutError(
          concat(name_, ": no answer to admin command (", what, ") within ", timeout_secs_, " s"));
    }
    backoff.pause();
  }
}

}  // namespace lsm::nvme
