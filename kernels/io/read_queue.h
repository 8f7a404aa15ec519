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

  /// Appends up to `limit` claims. With `block`, waits until there is at least one or the queue is
  /// closed. Extents that nobody wants any more are failed here, never read. Returns false once
  /// closed.
  bool claim(std::vector<Claim>& claims, size_t limit, bool block);

  /// Fails everything that is queued or pushed later, and releases blocked workers.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ReadGroup>> groups_;
  bool closed_ = false;
};

}  // namespace lsm
