// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/nvme/engine/worker_queue.h"

namespace lsm::nvme {

/// An opened drive, as a probe takes it.
struct ProbedDrive {
  Controller& controller;
  const NamespaceInfo& space;  // its first block is read; one without blocks is not probed
  const std::string& path;     // as the user named it, for errors
  const WorkerQueueMaker& make_queue;
};

/// Reads a block on each new way that reads will go: by the host into its memory, by the GPU that
/// submits, and into the memory of the GPU that rows land in. Identifying a controller shows none
/// of these: bridges that check accesses between devices (ACS) and an IOMMU may drop a GPU's
/// doorbell or a drive's writes without a word. `limit_secs`: longest wait for one read. Throws
/// TimeoutError if a read does not complete, SystemError if it fails, std::runtime_error if it
/// brings no data; all name the way. Precondition: set_num_queues() was called, and no queue
/// exists.
void probe_drive(const ProbedDrive& drive, const NvmeOptions& options, double limit_secs);

}  // namespace lsm::nvme
