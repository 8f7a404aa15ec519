// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/io/request.h"

namespace lsm {

/// One extent that a worker has taken and must complete or fail.
struct Claim {
  std::shared_ptr<Request> request;
  const Extent* extent;
};

/// The extents that wait for a worker, in the order of submission.
class ReadQueue {
 public:
  void push(std::shared_ptr<Request> request);

  /// Appends up to `limit` claims. With `block`, waits until there is at least one or the queue is
  /// closed. Extents of cancelled requests are failed here, never read. Returns false once closed.
  bool claim(std::vector<Claim>& claims, size_t limit, bool block);

  /// Fails everything that is queued or pushed later, and releases blocked workers.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Request>> requests_;
  bool closed_ = false;
};

}  // namespace lsm
