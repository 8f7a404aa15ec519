// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/read_queue.h"

namespace lsm {

void ReadQueue::push(std::shared_ptr<ReadGroup> group) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      groups_.push_back(std::move(group));
      changed_.notify_all();
      return;
    }
  }
  group->fail_rest("the storage engine is closed");
}

bool ReadQueue::claim(std::vector<Claim>& claims, size_t limit, bool block) {
  std::unique_lock lock(mutex_);
  if (block) changed_.wait(lock, [&] { return closed_ || !groups_.empty(); });
  while (!groups_.empty() && limit > 0) {
    const std::shared_ptr<ReadGroup>& group = groups_.front();
    if (group->cancelled()) group->fail_rest("cancelled");
    const Extent* extent = group->take_extent();
    if (extent == nullptr) {
      groups_.pop_front();
      continue;
    }
    claims.push_back({group, extent});
    --limit;
  }
  return !closed_;
}

void ReadQueue::close() {
  std::deque<std::shared_ptr<ReadGroup>> abandoned;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    abandoned.swap(groups_);
    for (const auto& group : abandoned) {
      group->fail_rest("the storage engine was closed before the rows were read");
    }
  }
  changed_.notify_all();
}

}  // namespace lsm
