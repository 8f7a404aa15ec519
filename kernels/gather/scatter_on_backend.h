// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuScatter on a Backend.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "kernels/core/backend_array.h"
#include "kernels/gather/copy_rows_functors.h"
#include "kernels/gather/gpu_scatter.h"

namespace lsm {

template <class Backend>
class ScatterOnBackend final : public GpuScatter {
 public:
  explicit ScatterOnBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
    backend_->enter();
  }
  ~ScatterOnBackend() override { backend_->drain(); }

  void scatter(const RowArray& source, std::span<const int32_t> source_rows, const RowArray& target,
               std::span<const int32_t> target_rows, int64_t row_bytes) override {
    const int64_t count = check_scatter(source, source_rows, target, target_rows);
    if (count == 0) return;
    backend_->enter();
    const NumberedRows<int32_t> rows{
        source.data, source_rows.empty() ? nullptr : source_rows_.upload(source_rows), target.data,
        target_rows.empty() ? nullptr : target_rows_.upload(target_rows), row_bytes};
    copy_rows_on(*backend_, count, row_bytes, alignment_bits(row_bytes, source.data, target.data),
                 rows);
  }

  void synchronize() override {
    backend_->enter();
    backend_->synchronize();
  }

  intptr_t stream() const override { return backend_->stream_number(); }

 private:
  const std::unique_ptr<Backend> backend_;  // outlives its allocations
  BackendArray<int32_t, Backend> source_rows_{*backend_};
  BackendArray<int32_t, Backend> target_rows_{*backend_};
};

}  // namespace lsm
