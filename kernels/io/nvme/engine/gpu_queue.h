// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Queue pairs that a GPU operates: rows still land in host memory, but no thread of the host writes
// a command, rings a doorbell or polls for a completion.
#pragma once

#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/nvme/engine/worker_queue.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Makes queues of the controller behind `transport` that kernels of the GPU `options.device`
/// operate (gpu_reads.h), each in a stream of its own. Maps the controller's registers for the GPU
/// until the maker and its queues are destroyed, which must precede the transport's destruction.
/// `timeout_secs`: longest wait for a kernel. Throws std::runtime_error without CUDA or this GPU,
/// or if it cannot map the registers; ArgumentError for buffers of more than 513 pages.
WorkerQueueMaker make_gpu_queues(Transport& transport, const GpuSubmission& options,
                                 double timeout_secs);

}  // namespace lsm::nvme
