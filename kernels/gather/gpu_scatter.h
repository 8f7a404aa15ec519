// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// deliver_rows() (reassembly.h) for memory of a GPU: unpacks rows that came as messages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/gather/scatter.h"

namespace lsm::comm {

/// Copies rows in a stream of its own. Not thread-safe.
class DeviceDelivery {
 public:
  virtual ~DeviceDelivery() = default;

  /// Queues what deliver_rows() does. Source and target are GPU memory or page-locked, and must
  /// stay until synchronize() has returned; the lists may go.
  virtual void deliver(const RowArray& source, std::span<const int32_t> source_rows,
                       const RowArray& target, std::span<const int32_t> target_rows,
                       int64_t row_bytes) = 0;

  /// Blocks until everything in the stream has happened; throws TimeoutError.
  virtual void synchronize() = 0;

  /// The cudaStream_t, as a number; 0 for the twin.
  virtual intptr_t stream() const = 0;
};

std::unique_ptr<DeviceDelivery> make_twin_delivery();
/// On GPU `device`. Throws std::runtime_error where this was built without CUDA.
std::unique_ptr<DeviceDelivery> make_device_delivery(int device, double timeout_secs);

}  // namespace lsm::comm
