// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kernels/io/transfers.h"
#include "kernels/io/writable_file.h"

namespace lsm {

/// One ring, driven by the thread that calls swap(). Memory is not registered: at the length of
/// these transfers, pinning the pages of each costs a few percent of its time, and registered
/// memory counts against the limit on locked memory.
class IoUringTransfers final : public Transfers {
 public:
  /// Throws SystemError if the kernel gives no ring.
  IoUringTransfers(std::string path, const TransferOptions& options, DirectMode direct);
  /// Waits for transfers that a time-out left in flight, or cancels them.
  ~IoUringTransfers() override;

  void sync() override { file_.sync(); }
  bool direct() const override { return file_.direct(); }
  int64_t block_bytes() const override { return file_.block_bytes(); }
  int64_t num_bytes() const override { return file_.num_bytes(); }

 private:
  class Ring;

  void run(SwapChunks& chunks, const Deadline& deadline) override;

  WritableFile file_;
  std::unique_ptr<Ring> ring_;
};

}  // namespace lsm
