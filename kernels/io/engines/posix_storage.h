// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/io/file_storage.h"

namespace lsm {

/// Reads by threads that call pread, with as many reads in flight as threads. Works on every POSIX
/// system.
class PosixStorage final : public FileStorage {
 public:
  PosixStorage(std::vector<std::string> paths, const RowLayout& layout,
               const EngineOptions& options);
  ~PosixStorage() override;

 private:
  void work();
  void read_extent(ActiveRead& read);

  std::vector<std::unique_ptr<HostBlock>> buffers_;  // one per thread
  std::atomic<size_t> next_buffer_{0};
  std::vector<std::thread> threads_;
};

}  // namespace lsm
