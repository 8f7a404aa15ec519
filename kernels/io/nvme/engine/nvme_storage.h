// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/nvme/engine/worker_queue.h"
#include "kernels/io/queued_storage.h"

namespace lsm::nvme {

/// Reads rows through NVMe queue pairs of our own. Each of `num_threads` workers has a queue pair
/// on every controller and keeps up to `queue_depth` commands in flight there. Part k of the rows
/// lies on namespace k, from its first block on. Reads land in buffers of the worker's, in host
/// memory or in a GPU's, and are copied out, so that an abandoned command never writes into memory
/// of others.
class NvmeStorage final : public QueuedStorage {
 public:
  /// `paths`: one per namespace; transports.h gives their meaning. Throws ArgumentError for options
  /// out of range and for a namespace that is too small for its part; further as probe_drive().
  NvmeStorage(std::vector<std::string> paths, const RowLayout& layout, const EngineOptions& options,
              const NvmeOptions& nvme);
  ~NvmeStorage() override;

  int64_t block_bytes() const override { return block_bytes_; }
  int gpu() const override { return nvme_.gpu; }
  /// True if blocks come from the drive, not from the page cache; the emulated drive reads files.
  bool direct() const override { return nvme_.transport.transport != "emulated"; }

 protected:
  const std::string& path(size_t file) const override { return paths_[file]; }
  int64_t max_read_bytes() const override { return max_read_bytes_; }

 private:
  class WorkerThread;
  struct Target {
    size_t controller;
    NamespaceInfo space;
  };

  WorkerQueueMaker queue_maker(Controller& controller) const;
  void open_namespaces();
  void check_size(const Target& target, size_t part) const;
  uint32_t num_workers();
  /// Tries each drive; throws as probe_drive().
  void probe() const;
  void stop();

  const NvmeOptions nvme_;
  const std::vector<std::string> paths_;
  std::vector<std::unique_ptr<Controller>> controllers_;
  std::vector<WorkerQueueMaker> queue_makers_;  // one per controller
  std::vector<Target> targets_;                 // one per part of the rows
  int64_t block_bytes_ = 0;  // the largest of the namespaces'; a multiple of the others
  int64_t max_read_bytes_ = 0;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<WorkerThread>> threads_;
};

}  // namespace lsm::nvme
