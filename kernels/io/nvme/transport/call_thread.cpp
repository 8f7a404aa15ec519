// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/call_thread.h"

namespace lsm::nvme {

CallThread::~CallThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CallThread::call(const std::function<void()>& call) {
  const std::lock_guard turn(turn_);
  std::unique_lock lock(mutex_);
  pending_ = &call;
  changed_.notify_all();
  changed_.wait(lock, [this] { return pending_ == nullptr; });
}

void CallThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return pending_ != nullptr || ending_; });
    if (pending_ == nullptr) return;
    (*pending_)();
    pending_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace lsm::nvme
