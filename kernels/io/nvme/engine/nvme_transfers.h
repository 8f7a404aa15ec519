// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/nvme/engine/read_buffers.h"
#include "kernels/io/nvme/engine/transports.h"
#include "kernels/io/transfers.h"

namespace lsm::nvme {

/// Long transfers by a queue pair of our own. Commands are enqueued in a batch with one doorbell,
/// and completions are polled in a batch. Chunks pass through buffers that the controller reaches:
/// the caller's memory has no addresses that a drive knows.
class NvmeTransfers final : public Transfers {
 public:
  /// `target`: for emulated, the file with the namespace's blocks, which is written to; for sysfs
  /// and libnvm, the name of a namespace (namespaces.h). Throws as NvmeStorage does.
  NvmeTransfers(std::string target, const TransferOptions& options, const NvmeOptions& nvme);
  /// `opened`: one namespace.
  NvmeTransfers(std::string target, OpenTransports opened, const TransferOptions& options,
                double command_timeout_secs);
  ~NvmeTransfers() override;

  /// A flush command.
  void sync() override;
  int64_t block_bytes() const override;
  int64_t num_bytes() const override { return static_cast<int64_t>(space_.bytes()); }

 private:
  int64_t chunk_bytes() const override { return chunk_bytes_; }
  void run(SwapChunks& chunks, const Deadline& deadline) override;
  /// Submits the chunks of the slots `added`, with one doorbell.
  void submit(const std::vector<uint16_t>& added);
  /// Takes one completed command into account. True: the slot is to be submitted again.
  bool end(SwapChunks& chunks, uint16_t slot, uint16_t status, bool* is_lost);

  const double command_timeout_secs_;
  std::mutex mutex_;
  std::unique_ptr<Controller> controller_;
  NamespaceInfo space_;
  int64_t chunk_bytes_ = 0;
  std::vector<SwapChunk> slots_;
  std::unique_ptr<ReadBuffers> buffers_;
  std::unique_ptr<IoQueue> queue_;
};

}  // namespace lsm::nvme
