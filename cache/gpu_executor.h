// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The executor whose cache is GPU memory, and its twin on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cache/plan.h"
#include "cache/row_targets.h"
#include "kernels/io/storage.h"

namespace lsm {

/// The path of rows from storage to a batch.
enum class Staging : uint8_t {
  kGather,  // page-locked memory: a kernel reads them over PCIe, and writes them to their places
  kCopy,    // page-locked memory: a copy engine moves them to the GPU, and a kernel to their places
  kResident,  // they are in GPU memory already
};

struct GpuExecutorOptions {
  int64_t num_lines = 0;      // rows of the cache, in GPU memory
  int64_t victim_slots = 0;   // rows of the victim buffer, in page-locked host memory
  int64_t prefetch_rows = 0;  // rows of the prefetch buffer, in GPU memory
  double timeout_secs = 60;   // longest wait, for a read or for the GPU
};

/// Replays plans on a GPU: copies only, no decisions. Cache and static partition are GPU memory,
/// victim and constant buffer page-locked host memory that kernels read and write over PCIe.
/// Rows behind PCIe are moved in a stream of their own, by so few thread blocks that a kernel which
/// trains meanwhile keeps its SMs. Precondition: plans are replayed in the order in which they were
/// made. Not thread-safe.
class GpuExecutor {
 public:
  virtual ~GpuExecutor() = default;

  /// Queues the moves of one plan:
  ///   1. rows of the memory tiers, and of `staged`, -> out
  ///   2. evicted lines, and spilled rows of `out`, -> victim slots
  ///   3. inserted rows of `out` -> lines
  /// `staged`: the rows from storage, in the order of plan.miss_position, in page-locked host
  /// memory, or with kResident in GPU memory. It must not change until synchronize() has returned.
  /// `out`: GPU memory with a row per position. Throws ArgumentError as CacheExecutor::replay()
  /// does. Moves that this GPU decided (Plan::on_gpu) are trusted and changed; the caller may drop
  /// them on return.
  virtual void replay(const cache::Plan& plan, std::span<const std::byte> staged,
                      std::span<std::byte> out) = 0;

  /// The same, but rows go straight from their tier to `targets`: GPU memory, of this process or
  /// mapped from another, or page-locked memory. Rows behind PCIe are read once, however many
  /// targets want them. Blocks until the previous replay has ended.
  virtual void replay_to(const cache::Plan& plan, std::span<const std::byte> staged,
                         std::span<const RowTargets> targets) = 0;

  /// Throws TimeoutError. Blocks until the targets of the last replay_to() have their rows, for
  /// readers on the host, on this GPU or on another. `staged` is free again then.
  virtual void wait_delivered() = 0;

  /// Starts copying the next plan's victim rows, in the order of its positions, to the prefetch
  /// buffer, as many as fit; a thread of the host does it. Replays read the other rows in place.
  /// Precondition: all earlier plans have been replayed.
  virtual void prefetch(std::span<const int64_t> victim_slots) = 0;

  /// Sets how the next replays read staged rows; initially kGather. The delivered rows are the
  /// same.
  virtual void set_staging(Staging staging) = 0;

  /// Throws TimeoutError. Blocks until all queued work has ended.
  virtual void synchronize() = 0;

  /// The cudaStream_t in which rows are complete, as a number; 0 for the twin.
  virtual intptr_t stream() const = 0;

  virtual int64_t row_bytes() const = 0;
  /// GPU memory and page-locked host memory of the tiers.
  virtual int64_t device_bytes() const = 0;
  virtual int64_t pinned_bytes() const = 0;
};

/// Reads rows `static_rows` and `constant_rows` from `storage`, which need not outlive this call.
std::unique_ptr<GpuExecutor> make_twin_executor(const GpuExecutorOptions& options, Storage& storage,
                                                std::span<const int64_t> static_rows,
                                                std::span<const int64_t> constant_rows);
/// On GPU `device`. Throws std::runtime_error where this was built without CUDA.
std::unique_ptr<GpuExecutor> make_gpu_executor(const GpuExecutorOptions& options, Storage& storage,
                                               std::span<const int64_t> static_rows,
                                               std::span<const int64_t> constant_rows, int device);

}  // namespace lsm
