// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/io/read_group.h"

namespace lsm {

/// One extent that a worker has taken and must complete or fail.
struct Claim {
  std::shared_ptr<ReadGroup> group;
  const Extent* extent;
};

/// The extents that wait for a worker, in the order of submission.
class ReadQueue {
 public:
  void push(std::shared_ptr<ReadGroup> group);

  /// Appends up to `limit` claims. Returns false once the queue is closed. Extents whose requests
  /// were cancelled fail here and are never read. With `block`, blocks until there is a claim or
  /// the queue is closed.
  bool claim(std::vector<Claim>& claims, size_t limit, bool block);

  /// Fails all extents, queued now or pushed later, and wakes blocked workers.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ReadGroup>> groups_;
  bool closed_ = false;
};

}  // namespace lsm
