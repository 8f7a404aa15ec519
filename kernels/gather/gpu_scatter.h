// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// scatter_rows() (scatter.h) for GPU memory: unpacks rows that arrived as messages.
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

  /// Queues scatter_rows(). Source and target are GPU memory or page-locked, and must stay valid
  /// until synchronize() has returned; the lists need not.
  virtual void scatter(const RowArray& source, std::span<const int32_t> source_rows,
                       const RowArray& target, std::span<const int32_t> target_rows,
                       int64_t row_bytes) = 0;

  /// Throws TimeoutError. Blocks until all work in the stream has ended.
  virtual void synchronize() = 0;

  /// The cudaStream_t, as a number; 0 for the twin.
  virtual intptr_t stream() const = 0;
};

std::unique_ptr<GpuScatter> make_twin_scatter();
/// A scatter on GPU `device`. Throws std::runtime_error in a build without CUDA.
std::unique_ptr<GpuScatter> make_gpu_scatter(int device, double timeout_secs);

}  // namespace lsm
