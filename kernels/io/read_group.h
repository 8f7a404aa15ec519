// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "kernels/io/read_plan.h"
#include "kernels/io/request.h"

namespace lsm {

/// Requests that were submitted together, and the one plan of reads that serves them.
class ReadGroup {
 public:
  /// `outstanding` counts this group's extents until each has been completed or failed; it must
  /// outlive the group.
  ReadGroup(ReadPlan plan, std::vector<std::shared_ptr<Request>> requests,
            std::atomic<int64_t>& outstanding);

  /// The next extent that no worker has taken, or null. Called under the queue's lock.
  const Extent* take_extent();
  bool empty() const { return plan_.extents.empty(); }
  /// True if all of its requests were cancelled.
  bool cancelled() const;

  /// Delivers the pieces of an extent, whose bytes `data` holds, to their requests.
  void complete(const Extent& extent, const std::byte* data);
  /// The same for a caller that copies the pieces: appends those that are wanted.
  void begin(const Extent& extent, const std::byte* data, std::vector<PieceCopy>& copies);
  void fail(const Extent& extent, const std::exception_ptr& error);
  /// Fails every extent that no worker has taken, with the reason `why`.
  void fail_rest(const char* why);

 private:
  const ReadPlan plan_;
  const std::vector<std::shared_ptr<Request>> requests_;
  std::atomic<int64_t>& outstanding_;
  size_t next_extent_ = 0;
};

}  // namespace lsm
