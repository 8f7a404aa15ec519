// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "kernels/core/start_thread.h"

namespace lsm::nvme {

/// A thread in which calls are made, one after the other; for a kernel module that ties what it
/// gives to the thread that asked.
class CallThread {
 public:
  CallThread() : thread_(start_thread([this] { run(); })) {}
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  /// Makes `call` in the thread and returns when it has returned. It must not throw. Thread-safe.
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
