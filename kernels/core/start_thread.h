// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/core/check.h"

namespace lsm {

/// The system cannot start another thread: a limit on processes, or memory. Becomes RuntimeError in
/// Python.
struct ThreadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A thread that runs `body`. Throws ThreadError where std::thread throws std::system_error.
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw ThreadError(concat("cannot start a thread (", error.code().message(),
                             "): lower the number of threads, or raise the limit on processes ",
                             "(`ulimit -u`, a container's pids.max) or on memory"));
  }
}

/// Adds `count` threads that run `body` to `threads`. If one cannot be started, calls `stop`, which
/// must make the others return, joins them and throws ThreadError. (Destroying a joinable
/// std::thread would end the process.)
template <class Body, class Stop>
void start_threads(std::vector<std::thread>& threads, int count, const Body& body,
                   const Stop& stop) {
  threads.reserve(threads.size() + static_cast<size_t>(count));
  try {
    for (int i = 0; i < count; ++i) threads.push_back(start_thread(body));
  } catch (...) {
    stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    throw;
  }
}

}  // namespace lsm
