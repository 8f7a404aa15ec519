// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The moves of one iteration: integers only, replayed by the executor.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lsm::cache {

/// The tier that a request is served from.
enum class Source : uint8_t { kStatic, kCache, kVictim, kConstant, kStorage };

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
};

inline constexpr std::array<const char*, 10> kCounterNames = {
    "requests", "hits",     "static_hits", "victim_hits", "constant_hits",
    "misses",   "bypasses", "evictions",   "spilled",     "victim_overflow"};
static_assert(sizeof(Counters) == kCounterNames.size() * sizeof(int64_t));

/// The moves of one iteration. evict, insert and spill entries are in the order of the decisions:
/// sets ascending, within a set in request order. Metadata words (metadata_word.h) as int64.
struct Plan {
  int64_t iteration = 0;
  std::vector<int64_t> ids;              // [n] requests, in order
  std::vector<Source> source;            // [n]
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
};

}  // namespace lsm::cache
