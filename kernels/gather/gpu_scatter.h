// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// scatter_rows() (scatter.h) for memory of a GPU: unpacks rows that came as messages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/gather/scatter.h"

namespace lsm {

/// Copies rows in a stream of its own. Not thread-safe.
class GpuScatter {
 public:
  virtual ~GpuScatter() = default;

  /// Queues what scatter_rows() does. Source and target are GPU memory or page-locked, and must
  /// stay until synchronize() has returned; the lists may go.
  virtual void scatter(const RowArray& source, std::span<const int32_t> source_rows,
                       const RowArray& target, std::span<const int32_t> target_rows,
                       int64_t row_bytes) = 0;

  /// Blocks until everything in the stream has happened; throws TimeoutError.
  virtual void synchronize() = 0;

  /// The cudaStream_t, as a number; 0 for the twin.
  virtual intptr_t stream() const = 0;
};

std::unique_ptr<GpuScatter> make_twin_scatter();
/// On GPU `device`. Throws std::runtime_error where this was built without CUDA.
std::unique_ptr<GpuScatter> make_gpu_scatter(int device, double timeout_secs);

}  // namespace lsm
