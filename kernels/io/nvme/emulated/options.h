// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/io/nvme/emulated/faults.h"

namespace lsm::nvme {

/// Properties of an emulated controller.
struct ControllerOptions {
  uint32_t num_queues = 16;            // pairs of I/O queues at most
  uint32_t max_queue_entries = 16384;  // a power of two, as with most drives
  uint32_t max_transfer_shift = 8;     // MDTS: 4 KiB << this; 0: no limit
  uint32_t doorbell_stride_shift = 0;  // doorbells are 4 << this bytes apart
  bool never_ready = false;            // a controller that does not come up
  ControllerFaults faults = {};
};

}  // namespace lsm::nvme
