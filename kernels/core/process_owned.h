// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <memory>

namespace lsm {

/// Deletes an object in the process that made this deleter, and leaves it alone in forked children.
/// The threads of the object do not exist there, so its destructor would wait for them for ever.
struct DeleteInItsProcess {
  pid_t process = getpid();

  template <typename T>
  void operator()(T* object) const {
    if (getpid() == process) delete object;
  }
};

/// An object with threads, which a forked child may let go.
template <typename T>
using ProcessOwned = std::unique_ptr<T, DeleteInItsProcess>;

template <typename T>
ProcessOwned<T> process_owned(std::unique_ptr<T> object) {
  return ProcessOwned<T>(object.release());
}

}  // namespace lsm
