// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/controller/admin_queue.h"
#include "kernels/io/nvme/controller/controller.h"

namespace lsm::nvme {

IoQueue::IoQueue(Controller& controller, uint16_t id, const QueueOptions& options)
    : controller_(controller),
      submission_(
          controller.transport().allocate(options.depth * sizeof(Command), DmaShape::kContiguous)),
      completion_(controller.transport().allocate(options.completion_depth * sizeof(Completion),
                                                  DmaShape::kContiguous)),
      state_(std::make_unique<QueueState>()),
      published_(options.depth) {
  const uint32_t stride = controller.capabilities_.doorbell_stride_bytes();
  uint32_t* registers = controller.transport().registers();
  pair_.submission = reinterpret_cast<Command*>(submission_.data);
  pair_.completion = reinterpret_cast<Completion*>(completion_.data);
  pair_.tail_doorbell = registers + tail_doorbell_offset(id, stride) / 4;
  pair_.head_doorbell = registers + head_doorbell_offset(id, stride) / 4;
  pair_.published = published_.data();
  pair_.state = state_.get();
  pair_.depth = options.depth;
  pair_.completion_depth = options.completion_depth;
  pair_.id = id;

  std::lock_guard lock(controller.admin_mutex_);
  AdminQueue& admin = *controller.admin_;
  admin.create_completion_queue({id, options.completion_depth, completion_.address(0)});
  try {
    admin.create_submission_queue({id, options.depth, submission_.address(0)}, id);
  } catch (...) {
    try {
      admin.delete_completion_queue(id);
    } catch (const std::exception&) {
      controller.disable_quietly();
    }
    throw;
  }
}

IoQueue::~IoQueue() {
  std::lock_guard lock(controller_.admin_mutex_);
  if (controller_.disabled_) return;
  try {
    // In this order: deleting the submission queue ends its commands (5.6).
    controller_.admin_->delete_submission_queue(pair_.id);
    controller_.admin_->delete_completion_queue(pair_.id);
  } catch (const std::exception&) {
    // It may still write to memory that is about to be freed; only a reset stops it.
    controller_.disable_quietly();
  }
}

}  // namespace lsm::nvme
