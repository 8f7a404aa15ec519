// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Queue pairs that a GPU works: rows still land in host memory, but no thread of the host writes a
// command, rings a doorbell or looks for a completion.
#pragma once

#include "kernels/io/nvme/engine/options.h"
#include "kernels/io/nvme/engine/worker_queue.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Makes queues of the controller behind `transport` that kernels of the GPU `options.device`
/// submit to and complete (gpu_reads.h), in a stream for each. Maps the controller's registers
/// for the GPU, until the maker and its queues are gone; they must go before the transport.
/// `timeout_secs`: longest wait for a kernel. Throws std::runtime_error where there is no CUDA or
/// no such GPU, or where it cannot map the registers. The queues' buffers may have 513 pages, else
/// ArgumentError.
WorkerQueueMaker make_gpu_queues(Transport& transport, const GpuSubmission& options,
                                 double timeout_secs);

}  // namespace lsm::nvme
