// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/core/mapped_file.h"
#include "kernels/core/thread_pool.h"
#include "kernels/io/storage.h"

namespace lsm {

/// Engines whose rows have addresses. submit() blocks until it has copied them.
class ResidentStorage : public Storage {
 protected:
  ResidentStorage(std::string engine, std::vector<std::string> paths, const RowLayout& layout,
                  const EngineOptions& options);

  Requests start(std::span<const RowRead> reads) override;

  FeatureFiles files_;
  ThreadPool pool_;
  std::vector<const std::byte*> bases_;  // first byte of each file

 private:
  void gather(const RowRead& read);
  void gather_striped(const RowRead& read);
};

/// All features in RAM: the in-memory baseline. Opening reads the files, and throws if they do not
/// fit in available memory.
class MemoryStorage final : public ResidentStorage {
 public:
  MemoryStorage(std::vector<std::string> paths, const RowLayout& layout,
                const EngineOptions& options);

 private:
  std::vector<std::unique_ptr<HostBlock>> blocks_;
};

/// Memory-mapped files with random-access advice, read by page faults: the baseline of other
/// systems. A request whose pages cannot be read, or whose file has become shorter, fails.
class MmapStorage final : public ResidentStorage {
 public:
  MmapStorage(std::vector<std::string> paths, const RowLayout& layout,
              const EngineOptions& options);

 private:
  Requests start(std::span<const RowRead> reads) override;

  std::vector<std::unique_ptr<MappedFile>> maps_;
};

}  // namespace lsm
