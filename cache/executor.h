// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/core/thread_pool.h"
#include "kernels/io/storage.h"

namespace lsm {

/// Where a plan found a row.
enum class RowSource : uint8_t {
  kStatic = 0,
  kCache = 1,
  kVictim = 2,
  kConstant = 3,
  kStorage = 4
};

/// One iteration's moves, as the planner decided them. Positions are rows of the batch.
struct PlanMoves {
  std::span<const uint8_t> source;  // per position: a RowSource
  std::span<const int64_t> slot;    // per position: row of that tier; ignored for kStorage
  std::span<const int64_t> evict_line, evict_slot;  // slot -1: the row is dropped
  std::span<const int64_t> insert_position, insert_line;
  std::span<const int64_t> spill_position, spill_slot;
};

/// The memory tiers of a feature cache, and the replay of plans on them: copies only, no decisions.
///
/// Plans must be replayed in the order in which they were made. One replay at a time.
class CacheExecutor {
 public:
  struct Sizes {
    int64_t num_lines = 0;     // rows of the cache
    int64_t victim_slots = 0;  // rows of the victim buffer
  };

  /// Reads rows `static_ids` and `constant_ids` from `storage`, which need not outlive this call;
  /// each wait for them takes at most `timeout_secs`. Cache and victim buffer take memory as they
  /// fill. Throws what reading throws.
  CacheExecutor(const Sizes& sizes, Storage& storage, std::span<const int64_t> static_ids,
                std::span<const int64_t> constant_ids, double timeout_secs);

  /// Replays one plan on `batch`, a row per position, in which the rows from storage have arrived:
  ///   1. rows of the memory tiers -> batch
  ///   2. evicted lines, and spilled rows of the batch -> victim slots
  ///   3. inserted rows of the batch -> lines
  /// Slots and lines that are read in a step may thus be written in a later one. Throws
  /// ArgumentError, before anything moves, if an index is out of range or a slot or line is written
  /// twice.
  void replay(const PlanMoves& plan, std::span<std::byte> batch, ThreadPool& pool);

  int64_t row_bytes() const { return row_bytes_; }
  int64_t num_lines() const { return lines_.num_rows; }
  int64_t victim_slots() const { return victims_.num_rows; }

 private:
  /// Rows in memory of their own, and which of them the current plan writes.
  struct Tier {
    Tier(int64_t rows, int64_t row_bytes)
        : num_rows(rows), block(static_cast<size_t>(rows * row_bytes)) {}

    int64_t num_rows;
    HostBlock block;
    std::vector<uint32_t> written;  // per row: the number of the last plan that wrote it
  };

  void fill(Tier& tier, Storage& storage, std::span<const int64_t> ids, double timeout_secs);
  void check(const PlanMoves& plan, int64_t num_positions);
  void check_sources(const PlanMoves& plan);
  void claim(const char* name, Tier& tier, std::span<const int64_t> rows, bool may_drop);

  const int64_t row_bytes_;
  Tier static_rows_;
  Tier lines_;
  Tier victims_;
  Tier constant_rows_;
  uint32_t plan_number_ = 0;
};

}  // namespace lsm
