// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/core/start_thread.h"

namespace lsm::nvme {

/// A thread that makes calls, one after the other; for a kernel module that ties its resources to
/// the calling thread.
class CallThread {
 public:
  CallThread() : thread_(start_thread([this] { run(); })) {}
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  /// Makes `call`, which must not throw, in the thread. Thread-safe. Blocks until it has returned.
  void call(const std::function<void()>& call);

 private:
  void run();

  std::mutex turn_;  // held by the caller whose call it is
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* pending_ = nullptr;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lsm::nvme
