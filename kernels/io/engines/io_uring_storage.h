// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/io/file_storage.h"

namespace lsm {

/// io_uring with O_DIRECT, registered files and buffers, and a deep queue. Each of `num_threads`
/// workers owns a ring of `queue_depth` reads; rows land in the ring's own aligned buffers and are
/// copied out, so that an abandoned request never leaves the kernel writing into freed memory.
class IoUringStorage final : public FileStorage {
 public:
  IoUringStorage(std::vector<std::string> paths, const RowLayout& layout,
                 const EngineOptions& options);
  ~IoUringStorage() override;

 private:
  class Worker;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// The reason why the io_uring engine cannot run here (not built, or refused by the kernel or a
/// sandbox); empty if it can.
std::string io_uring_problem();

}  // namespace lsm
