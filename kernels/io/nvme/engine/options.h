// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/io/nvme/engine/transports.h"

namespace lsm::nvme {

/// Options of submission and completion by kernels of a GPU.
struct GpuSubmission {
  int device = -1;     // the GPU; -1: the host submits
  int num_blocks = 0;  // most thread blocks of a kernel; 0: as many as 30% of the GPU's SMs
};

/// Options of the nvme engine beyond EngineOptions.
struct NvmeOptions {
  TransportOptions transport = {};
  double command_timeout_secs = 10.0;  // longest wait for one command
  GpuSubmission submission = {};
  int gpu = -1;  // the GPU whose memory drives write to; -1: host memory
};

}  // namespace lsm::nvme
