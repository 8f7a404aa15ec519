// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "kernels/core/process_owned.h"

namespace lsm {

/// An object with threads or locks, which a forked child makes anew at its first use: threads of
/// the parent do not exist there, and locks that they held stay locked.
template <typename T>
class RemadeAfterFork {
 public:
  using Make = std::function<std::unique_ptr<T>()>;

  explicit RemadeAfterFork(Make make) : make_(std::move(make)), object_(process_owned(make_())) {}

  /// The object of this process. Calls are one at a time.
  T& get() {
    if (const pid_t process = getpid(); process != process_) {
      object_ = process_owned(make_());
      process_ = process;
    }
    return *object_;
  }

 private:
  Make make_;
  pid_t process_ = getpid();
  ProcessOwned<T> object_;
};

}  // namespace lsm
