// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/io/nvme/transports.h"

namespace lsm::nvme {

/// What the nvme engine can be told beyond what all engines are.
struct NvmeOptions {
  TransportOptions transport = {};
  double command_timeout_secs = 10.0;  // longest wait for one command
};

}  // namespace lsm::nvme
