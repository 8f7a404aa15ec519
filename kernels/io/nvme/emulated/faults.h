// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/core/hash.h"

namespace lsm::nvme {

/// Injected faults of an emulated controller: shares of the read commands, each drawn from (seed,
/// number of the command), so that a run can be repeated.
struct ControllerFaults {
  uint64_t seed = 0;
  uint64_t after = 0;     // number of commands before the first fault
  double error_rate = 0;  // fail with one of several statuses, leaving garbage in the buffer
  double loss_rate = 0;   // never complete
  double delay_rate = 0;  // complete `delay_secs` later
  double delay_secs = 0.001;
  double lost_data_rate = 0;  // complete with success, and leave the buffer as it was
  bool reorder = false;       // complete the present ones in random order, and some a round later

  bool any() const {
    return error_rate > 0 || loss_rate > 0 || delay_rate > 0 || lost_data_rate > 0 || reorder;
  }
};

/// A number in [0, 1), a function of its arguments.
inline double draw(uint64_t seed, uint64_t counter, uint64_t stream) {
  const uint64_t bits = mix64(mix64(seed * 3 + stream) + counter);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace lsm::nvme
