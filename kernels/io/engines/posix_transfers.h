// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kernels/core/thread_pool.h"
#include "kernels/io/transfers.h"
#include "kernels/io/writable_file.h"

namespace lsm {

/// Threads that call pread and pwrite: as many chunks in flight as threads.
class PosixTransfers final : public Transfers {
 public:
  PosixTransfers(std::string path, const TransferOptions& options, DirectMode direct);

  void sync() override { file_.sync(); }
  bool direct() const override { return file_.direct(); }
  int64_t block_bytes() const override { return file_.block_bytes(); }
  int64_t num_bytes() const override { return file_.num_bytes(); }

 private:
  void run(SwapChunks& chunks, const Deadline& deadline) override;
  void move(SwapChunks& chunks, int64_t index, const Deadline& deadline);

  WritableFile file_;
  ThreadPool pool_;
};

}  // namespace lsm
