// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/read_queue.h"

#include <stdexcept>

namespace lsm {
namespace {

void fail_rest(Request& request, const char* why) {
  const auto error =
      std::make_exception_ptr(std::runtime_error(request.description() + ": " + why));
  while (request.take_extent() >= 0) request.fail(error);
}

}  // namespace

void ReadQueue::push(std::shared_ptr<Request> request) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      requests_.push_back(std::move(request));
      changed_.notify_all();
      return;
    }
  }
  fail_rest(*request, "the storage engine is closed");
}

bool ReadQueue::claim(std::vector<Claim>& claims, size_t limit, bool block) {
  std::unique_lock lock(mutex_);
  if (block) changed_.wait(lock, [&] { return closed_ || !requests_.empty(); });
  while (!requests_.empty() && limit > 0) {
    const std::shared_ptr<Request>& request = requests_.front();
    if (request->cancelled()) fail_rest(*request, "cancelled");
    const int64_t index = request->take_extent();
    if (index < 0) {
      requests_.pop_front();
      continue;
    }
    claims.push_back({request, &request->plan().extents[index]});
    --limit;
  }
  return !closed_;
}

void ReadQueue::close() {
  std::deque<std::shared_ptr<Request>> abandoned;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    abandoned.swap(requests_);
    for (const auto& request : abandoned) {
      fail_rest(*request, "the storage engine was closed before the rows were read");
    }
  }
  changed_.notify_all();
}

}  // namespace lsm
