// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The moves of one iteration: integers only, replayed by the executor.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/gpu_moves.h"

namespace lsm {

/// The tier that a request is served from.
enum class RowSource : uint8_t { kStatic, kCache, kVictim, kConstant, kStorage };
inline constexpr size_t kNumTiers = 4;  // the tiers in memory

}  // namespace lsm

namespace lsm::cache {

/// Counters of one iteration, in the order of kCounterNames. Requests are the sum of the hits of
/// all tiers and the misses.
struct Counters {
  int64_t requests = 0;
  int64_t hits = 0;  // of the cache
  int64_t static_hits = 0;
  int64_t victim_hits = 0;
  int64_t constant_hits = 0;
  int64_t misses = 0;
  int64_t bypasses = 0;
  int64_t evictions = 0;
  int64_t spilled = 0;          // rows that entered the victim buffer
  int64_t victim_overflow = 0;  // rows with a next use that it refused or dropped

  friend bool operator==(const Counters&, const Counters&) = default;
};

inline constexpr std::array<const char*, 10> kCounterNames = {
    "requests", "hits",     "static_hits", "victim_hits", "constant_hits",
    "misses",   "bypasses", "evictions",   "spilled",     "victim_overflow"};
static_assert(sizeof(Counters) == kCounterNames.size() * sizeof(int64_t));

/// A row that asked for a line, and the outcome.
struct Move {
  uint32_t position;  // of the row
  int64_t line;       // that it got, or -1
  bool evicts;        // whether another row leaves that line
};

/// The moves of one iteration. evict, insert and spill entries are in the order of the decisions:
/// sets ascending, within a set in request order. Metadata words (metadata_word.h) as int64.
struct Plan {
  int64_t iteration = 0;
  std::vector<int64_t> ids;              // [n] requests, in order
  std::vector<RowSource> source;         // [n]
  std::vector<int64_t> slot;             // [n] line, victim slot, index in the id list, or -1
  std::vector<int64_t> evict_line;       // [m]
  std::vector<int64_t> evict_slot;       // [m] victim slot, or -1: discarded
  std::vector<int64_t> evict_word;       // [m] metadata word of the row there, or 0
  std::vector<int64_t> insert_position;  // [k] index into ids
  std::vector<int64_t> insert_line;      // [k]
  std::vector<int64_t> spill_position;   // [j] bypassed rows that the victim buffer keeps
  std::vector<int64_t> spill_slot;       // [j]
  std::vector<int64_t> spill_word;       // [j]
  // Rows in the victim buffer whose word was kUnknownUse and that a batch pushed since the last
  // plan requests after this iteration. They take effect before the moves, which may write the
  // slots.
  std::vector<int64_t> tag_slot;  // [l]
  std::vector<int64_t> tag_word;  // [l]
  Counters counters;

  // The rows of two tiers, positions ascending.
  std::vector<int64_t> miss_position;    // [misses] requests that are served from storage
  std::vector<int64_t> miss_id;          // [misses]
  std::vector<int64_t> victim_position;  // [v] requests that are served from the victim buffer
  std::vector<int64_t> victim_slot;      // [v]

  // Of a plan that a GPU made: its moves. list() reads back ids, miss_position, slot, leaving,
  // evict, insert and spill. No row has a next use in its word then.
  std::shared_ptr<GpuMoves> on_gpu;
  // The victim slots of the rows that leave the device: an entry per move, none without such a
  // buffer.
  std::vector<int64_t> leaving_slot;  // [moves] or [0]; -1: the row is dropped, or there is none
  std::vector<int64_t> leaving_word;  // [moves] or [0]

  /// Adds the `count` moves move_of(i), whose rows leave for leaving_slot[i].
  template <class MoveOf>
  void add_moves(size_t count, const MoveOf& move_of) {
    for (size_t i = 0; i < count; ++i) {
      const Move move = move_of(i);
      const int64_t slot = leaving_slot.empty() ? -1 : leaving_slot[i];
      const int64_t word = leaving_word.empty() ? 0 : leaving_word[i];
      if (move.line >= 0) {
        insert_position.push_back(move.position);
        insert_line.push_back(move.line);
        if (!move.evicts) continue;
        evict_line.push_back(move.line);
        evict_slot.push_back(slot);
        evict_word.push_back(word);
      } else if (slot >= 0) {
        spill_position.push_back(move.position);
        spill_slot.push_back(slot);
        spill_word.push_back(word);
      }
    }
  }

  /// Requests and their sources by range of ids; range k ends before ends[k], where range k + 1
  /// begins. The other counters are 0. `row_of`: the requests of ranks, as indices into `ids`,
  /// which count in place of one request for each id; empty: one rank has made all. Precondition:
  /// ids are on the host.
  std::vector<Counters> count_by_range(std::span<const int64_t> ends,
                                       std::span<const int32_t> row_of) const;

  /// Counts the requests by source and lists those of storage and, if there is a slot for each, of
  /// the victim buffer.
  void count_sources();

  /// Reads back arrays that are on the GPU only; none the second time.
  void list();

 private:
  bool is_listed_ = false;
};

}  // namespace lsm::cache
