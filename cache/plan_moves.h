// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A plan as executors replay it, and the checks before anything moves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lsm {

class GpuMoves;

/// The tier in which a plan found a row.
enum class RowSource : uint8_t {
  kStatic = 0,
  kCache = 1,
  kVictim = 2,
  kConstant = 3,
  kStorage = 4
};
inline constexpr size_t kNumTiers = 4;  // the tiers in memory

/// One iteration's moves, as the planner decided them. Positions are rows of the batch.
struct PlanMoves {
  int64_t iteration = 0;
  std::span<const uint8_t> source;  // per position: a RowSource
  std::span<const int64_t> slot;    // per position: row of that tier; ignored for kStorage
  std::span<const int64_t> evict_line, evict_slot, evict_word;  // slot -1: the row is dropped
  std::span<const int64_t> insert_position, insert_line;
  std::span<const int64_t> spill_position, spill_slot, spill_word;
  std::span<const int64_t> tag_slot, tag_word;  // of rows that are in the buffer before the moves

  // For a GpuExecutor, instead of slot, evict, insert and spill: moves in the memory of the GPU
  // that decided them. The host has these parts only.
  GpuMoves* on_gpu = nullptr;
  std::span<const int64_t> leaving_slot =
      {};  // per move, or empty: where the row that leaves goes; -1
  std::span<const int64_t> victim_position = {},
                           victim_slot = {};  // of rows from the victim buffer
};

/// Rows that enter the victim buffer, or whose next use becomes known there.
struct VictimMoves {
  std::span<const int64_t> slot;  // -1: the row is dropped
  std::span<const int64_t> word;  // metadata words
};

/// Checks plans against the tiers' sizes.
class PlanCheck {
 public:
  /// Rows of each tier, by RowSource.
  explicit PlanCheck(const std::array<int64_t, kNumTiers>& tier_rows);

  /// Throws ArgumentError if an index is out of range, a slot or line is written twice or a word
  /// names no coming iteration.
  void operator()(const PlanMoves& plan);

 private:
  void check_sources(const PlanMoves& plan) const;
  void claim(const char* name, std::vector<uint32_t>& written, std::span<const int64_t> rows,
             bool may_drop);

  const std::array<int64_t, kNumTiers> tier_rows_;
  // Per row: the number of the last plan that wrote it.
  std::vector<uint32_t> lines_written_;
  std::vector<uint32_t> victims_written_;
  uint32_t plan_number_ = 0;
};

}  // namespace lsm
