// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Sums of gradients by row on a GPU, in the same order in every run, and Adagrad with the sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/embed/adagrad.h"

namespace lsm {

/// Gradients sorted by their row, in memory of the device.
struct SortedGradients {
  const int32_t* rows;    // [count], ascending
  const int64_t* places;  // [count]: gradient i is row places[i] of `values`
  const float* values;    // [.., dim]
  int64_t count;
  int64_t dim;
  float* partial;  // [2 * num_windows(count), dim]: sums of rows with many gradients

  /// Most gradients that one warp adds up.
  static constexpr int64_t kWindow = 128;
  static int64_t num_windows(int64_t count) { return (count + kWindow - 1) / kWindow; }
};

/// Queues to `stream` (a cudaStream_t as a number) of GPU `device`: updates each row of `table`
/// that has gradients, by their sum. Throws std::runtime_error in a build without CUDA.
void update_rows_on_gpu(const SortedGradients& gradients, const AdagradTable& table, int device,
                        intptr_t stream);
/// The same by a host loop.
void update_rows_by_twin(const SortedGradients& gradients, const AdagradTable& table);

/// Like update_rows_on_gpu, but writes the sum of row r to row r of `out` [.., dim]. Rows without
/// gradients stay as they are.
void sum_rows_on_gpu(const SortedGradients& gradients, float* out, int device, intptr_t stream);
void sum_rows_by_twin(const SortedGradients& gradients, float* out);

}  // namespace lsm
