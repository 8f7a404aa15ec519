// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/plan_check.h"
#include "cache/row_targets.h"
#include "cache/victim_prefetcher.h"
#include "kernels/core/buffer.h"
#include "kernels/core/thread_pool.h"
#include "kernels/io/storage.h"

namespace lsm {

/// The memory tiers of a feature cache, and the replay of plans on them: copies only, no decisions.
///
/// Precondition: plans are replayed in the order in which they were made, one at a time.
class CacheExecutor {
 public:
  struct Sizes {
    int64_t num_lines = 0;            // rows of the cache
    int64_t victim_slots = 0;         // rows of the victim buffer
    int64_t prefetch_iterations = 0;  // a thread copies their victim rows ahead of replays
  };

  /// Reads rows `static_rows` and `constant_rows` from `storage`, which need not outlive this call.
  /// Each wait for them takes at most `timeout_secs`. Cache and victim buffer take memory as they
  /// fill. Throws the errors of reads.
  CacheExecutor(const Sizes& sizes, Storage& storage, std::span<const int64_t> static_rows,
                std::span<const int64_t> constant_rows, double timeout_secs);

  /// Starts prefetching the victim rows of a coming plan. `batch`: as for replay(), with the plan's
  /// source and slot; they must stay valid until that replay or start_over(). Callable from any
  /// thread.
  void open_batch(int64_t iteration, const VictimPrefetcher::Batch& batch) {
    prefetcher_.open(iteration, batch);
  }

  /// Replays one plan on `batch`, a row per position. `staged`: the rows from storage, in the order
  /// of plan.miss_position; empty: they are in `batch`.
  ///   1. rows of the memory tiers, and of `staged`, -> batch
  ///   2. evicted lines, and spilled rows of the batch -> victim slots
  ///   3. inserted rows of the batch -> lines
  /// A later step may so write slots and lines that an earlier one reads. Prefetched rows are not
  /// copied again. Before anything moves, throws ArgumentError if an index is out of range, a slot
  /// or line is written twice or a word names no coming iteration, and throws the errors of
  /// prefetching.
  void replay(const cache::Plan& plan, std::span<const std::byte> staged,
              std::span<std::byte> batch, ThreadPool& pool);

  /// The same, but rows go straight from their tier to `targets`. The first step copies only rows
  /// that the plan spills or inserts to `batch`, and all wanted rows to `targets`. Other rows of
  /// `batch` are undefined afterwards.
  void replay_to(const cache::Plan& plan, std::span<const std::byte> staged,
                 std::span<std::byte> batch, std::span<const RowTargets> targets, ThreadPool& pool);

  /// Forgets the open batches and the rows of the victim buffer: plans start over.
  void start_over() { prefetcher_.forget(); }

  /// Rows that were prefetched from the victim buffer.
  int64_t prefetched_rows() const { return prefetcher_.num_copied(); }

  int64_t row_bytes() const { return row_bytes_; }
  int64_t num_lines() const { return lines_.num_rows; }
  int64_t victim_slots() const { return victims_.num_rows; }

 private:
  /// Rows of one tier, with memory of their own.
  struct Tier {
    Tier(int64_t rows, int64_t row_bytes)
        : num_rows(rows), block(static_cast<size_t>(rows * row_bytes)) {}

    int64_t num_rows;
    HostBlock block;
  };

  /// The places of a batch's rows before its plan is replayed.
  struct RowsNow {
    const cache::Plan& plan;
    std::span<const uint8_t> arrived;  // from the victim buffer; by position, or empty
    std::byte* batch;

    bool in_batch(int64_t i) const {
      return plan.source[i] == RowSource::kStorage || (!arrived.empty() && arrived[i] != 0);
    }
  };

  void fill(Tier& tier, Storage& storage, std::span<const int64_t> rows, double timeout_secs);
  void check(const cache::Plan& plan, std::span<const std::byte> staged,
             std::span<const std::byte> batch);
  void place_staged(const cache::Plan& plan, const std::byte* staged, std::byte* batch,
                    ThreadPool& pool) const;
  const std::byte* row_in_tier(const cache::Plan& plan, int64_t i) const;
  void keep(const RowsNow& now, std::span<const int64_t> positions, ThreadPool& pool);
  void deliver(const RowsNow& now, const RowTargets& list, ThreadPool& pool) const;
  void move(const cache::Plan& plan, const std::byte* rows, ThreadPool& pool);

  const int64_t row_bytes_;
  Tier static_;
  Tier lines_;
  Tier victims_;
  Tier constant_;
  PlanCheck check_;
  VictimPrefetcher prefetcher_;  // last: its thread reads victims_
};

}  // namespace lsm
