// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The functors of GpuSetCache on a GPU: for one request, for one set and for one line per warp.
// They work on raw memory; decisions are those of set_loop.h.
#pragma once

#include <cstdint>

#include "cache/gpu_set_cache.h"
#include "cache/next_use_chain_functors.h"
#include "cache/plan.h"
#include "cache/policy/line.h"
#include "cache/set_cache.h"
#include "cache/set_loop.h"
#include "cache/victims_functors.h"
#include "kernels/core/atomics.h"
#include "kernels/core/hash.h"
#include "kernels/core/modulus.h"

namespace lsm::cache {

/// The memory of all sets, not owned.
template <class Policy>
struct SetsRef {
  Policy policy;
  int64_t* tags;                   // [num_sets * ways]
  typename Policy::Line* lines;    // [num_sets * ways]
  typename Policy::State* states;  // [num_sets]
  uint64_t* extra;                 // [num_sets * extra_words]
  uint32_t num_sets;
  Modulus modulus;  // of num_sets
  int32_t ways;
  int32_t extra_words;

  LSM_HOST_DEVICE uint32_t set_of(int64_t id) const {
    return static_cast<uint32_t>(modulus(mix64(static_cast<uint64_t>(id))));
  }

  LSM_HOST_DEVICE SetView<Policy> view_of(int64_t set) const {
    return {tags + set * ways, lines + set * ways, states + set, extra + set * extra_words, ways};
  }

  /// The way of `id` in its set, or -1.
  template <class Lanes>
  LSM_HOST_DEVICE int32_t find(const Lanes& lanes, uint32_t set, int64_t id) const {
    const int64_t* const set_tags = tags + int64_t{set} * ways;
    return first_way(lanes, ways, [&](int32_t way) { return set_tags[way] == id; });
  }
};

/// The first batch of the window on its way through decide(), not owned. The key of a candidate is
/// its set, that of any other row num_sets.
struct BatchRef {
  ChainRef chain;
  int64_t* ids;        // [n]
  RowSource* source;   // [n]
  int64_t* slot;       // [n]
  uint32_t* key;       // [n] in request order
  uint32_t* position;  // [n] 0, 1, 2, ..
  uint32_t t;

  LSM_HOST_DEVICE const Access& row(int64_t i) const {
    return chain.at(chain.first + static_cast<uint32_t>(i));
  }
};

/// A warp per request: finds its line and touches it, or writes its set, and its slot in the victim
/// buffer.
template <class Policy>
struct LookUp {
  SetsRef<Policy> sets;
  VictimsRef victims;
  BatchRef rows;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const Access row = rows.row(i);
    const uint32_t set = sets.set_of(row.id);
    const bool asks_cache = rows.source[i] == RowSource::kStorage;
    const int32_t way = asks_cache ? sets.find(lanes, set, row.id) : -1;
    lanes.each([&](int lane) {
      if (lane != 0) return;
      rows.key[i] = way < 0 && asks_cache ? set : sets.num_sets;
      rows.position[i] = static_cast<uint32_t>(i);
      rows.ids[i] = row.id;
      if (!asks_cache) return;
      if (way < 0) {
        rows.slot[i] = victims.is_on() ? victims.find(row.id) : -1;
        if (rows.slot[i] >= 0) rows.source[i] = RowSource::kVictim;
        return;
      }
      rows.slot[i] = int64_t{set} * sets.ways + way;
      rows.source[i] = RowSource::kCache;
      // Ids of a batch are distinct, so no other warp has this line.
      auto& line = sets.lines[rows.slot[i]];
      line.touched = rows.t + 1;
      line.next_use = row.next_use;
      sets.policy.on_hit(line);
    });
  }
};

/// Puts the rows that the host found in their tiers.
struct SetBuffered {
  BatchRef rows;
  const BufferedRow* buffered;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    rows.source[buffered[i].position] = buffered[i].source;
    rows.slot[buffered[i].position] = buffered[i].slot;
  }
};

/// Items of an OrderedSum: the rows of a batch, of which it lists those from storage and from the
/// victim buffer. The sum has both numbers.
struct ListFar {
  static constexpr int kTile = 128;
  static constexpr int kVictimShift = 31;  // a batch on a GPU has fewer rows
  static constexpr int64_t kMissMask = (int64_t{1} << kVictimShift) - 1;

  BatchRef rows;
  int64_t num_rows;
  uint32_t* position;        // [misses]
  int64_t* id;               // [misses]
  int64_t* victim_position;  // [victims]
  int64_t* victim_slot;      // [victims]
  int64_t* num_misses;
  int64_t* num_victims;

  LSM_HOST_DEVICE int64_t count() const { return num_rows; }
  LSM_HOST_DEVICE int64_t value(int64_t i) const {
    const RowSource source = rows.source[i];
    return int64_t{source == RowSource::kStorage} | int64_t{source == RowSource::kVictim}
                                                        << kVictimShift;
  }
  LSM_HOST_DEVICE void place(int64_t i, int64_t value, int64_t before) const {
    if (value == 0) return;
    if (value == 1) {
      position[before & kMissMask] = static_cast<uint32_t>(i);
      id[before & kMissMask] = rows.ids[i];
    } else {
      victim_position[before >> kVictimShift] = i;
      victim_slot[before >> kVictimShift] = rows.slot[i];
    }
  }
  LSM_HOST_DEVICE void end(int64_t total) const {
    *num_misses = total & kMissMask;
    *num_victims = total >> kVictimShift;
  }
};

/// The decisions about candidates, in the order of the keys. Not owned.
struct MovesRef {
  int64_t* line;     // [n] -1: none
  uint8_t* evicts;   // [n] whether a row leaves the line
  uint64_t* order;   // [n] work memory: the lowest is placed next, kNoKey: it was
  Leaving* leaving;  // [n], or null
  int64_t* counts;   // evictions, bypasses; 0 before
};

/// A warp per candidate. The first of each set decides for all of the set, in request order or, if
/// the policy ranks newcomers, from the best on.
template <class Policy>
struct PlaceRows {
  SetsRef<Policy> sets;
  ScoresRef scores;
  BatchRef rows;
  const uint32_t* keys;       // [n] sorted
  const uint32_t* positions;  // [n] in the order of the keys, then of the requests
  int64_t count;
  MovesRef moves;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const uint32_t set = keys[i];
    if (set == sets.num_sets || (i > 0 && keys[i - 1] == set)) return;
    SetView<Policy> view = sets.view_of(set);
    Turn turn = {rows.t, set, 0};
    int64_t end = i + 1;
    while (end < count && keys[end] == set) ++end;
    int64_t num_placed = 0;
    if constexpr (RanksNewcomers<Policy>) {
      num_placed = place_best(lanes, view, turn, i, end);
    } else {
      for (int64_t j = i; j < end; ++j) num_placed += settle(lanes, view, turn, j);
    }
    const int64_t num_bypassed = end - i - num_placed;
    lanes.each([&](int lane) {
      if (lane != 0) return;
      if (turn.evictions > 0) atomic_add(&moves.counts[0], int64_t{turn.evictions});
      if (num_bypassed > 0) atomic_add(&moves.counts[1], num_bypassed);
    });
  }

 private:
  /// Places candidates [begin, end) from the best on, until one is turned away, as then are all.
  /// Returns how many got a line.
  template <class Lanes>
  LSM_HOST_DEVICE int64_t place_best(const Lanes& lanes, SetView<Policy>& view, Turn& turn,
                                     int64_t begin, int64_t end) const {
    const auto each = [&](const auto& body) {
      lanes.each([&](int lane) {
        for (int64_t j = begin + lane; j < end; j += Lanes::kLanes) body(j);
      });
    };
    each([&](int64_t j) { moves.order[j] = kNoKey - 1 - sets.policy.key(newcomer(j), turn); });
    int64_t num_placed = 0;
    while (num_placed < end - begin) {
      const int64_t j = begin + first_lowest(lanes, static_cast<int32_t>(end - begin),
                                             [&](int32_t k) { return moves.order[begin + k]; });
      if (!settle(lanes, view, turn, j)) break;
      lanes.each([&](int lane) {
        if (lane == 0) moves.order[j] = kNoKey;
      });
      ++num_placed;
    }
    each([&](int64_t j) {
      if (moves.order[j] != kNoKey) write(j, newcomer(j), Placement());
    });
    return num_placed;
  }

  /// Returns whether candidate j got a line.
  template <class Lanes>
  LSM_HOST_DEVICE bool settle(const Lanes& lanes, SetView<Policy>& view, Turn& turn,
                              int64_t j) const {
    const Newcomer row = newcomer(j);
    const Placement placed = place(lanes, sets.policy, view, turn, row);
    lanes.each([&](int lane) {
      if (lane == 0) write(j, row, placed);
    });
    return placed.way >= 0;
  }

  LSM_HOST_DEVICE Newcomer newcomer(int64_t j) const {
    const Access& row = rows.row(positions[j]);
    return {row.id, row.next_use, Policy::kNeedsScore ? scores.of(row.id) : 0};
  }

  /// Writes the outcome of candidate j. Nobody asks for positions.
  LSM_HOST_DEVICE void write(int64_t j, const Newcomer& row, const Placement& placed) const {
    const bool evicts = placed.way >= 0 && placed.evicted_id != kEmptyTag;
    moves.line[j] = placed.way < 0 ? -1 : int64_t{keys[j]} * sets.ways + placed.way;
    moves.evicts[j] = evicts;
    if (moves.leaving == nullptr) return;
    moves.leaving[j] = placed.way < 0 ? Leaving{row.id, row.next_use, 0, rows.t + 1, row.score}
                                      : Leaving{placed.evicted_id, placed.evicted_next_use, 0,
                                                placed.evicted_touched, placed.evicted_score};
  }
};

/// A warp per id that enters the window: updates its line if the id has no earlier occurrence
/// there.
template <class Policy>
struct LinkLine {
  SetsRef<Policy> sets;
  EnteringRef entering;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    if (entering.previous[i] != ChainRef::kEmpty) return;
    const int64_t id = entering.chain.at(entering.first + static_cast<uint32_t>(i)).id;
    const uint32_t set = sets.set_of(id);
    const int32_t way = sets.find(lanes, set, id);
    lanes.each([&](int lane) {
      if (lane != 0 || way < 0) return;
      const int64_t number = int64_t{set} * sets.ways + way;
      auto& line = sets.lines[number];
      if (line.next_use != kNoNextUse) return;
      line.next_use = entering.batch;
    });
  }
};

template <class Policy>
struct RefreshLine {
  SetsRef<Policy> sets;

  LSM_HOST_DEVICE void operator()(int64_t line) const { sets.policy.refresh(sets.lines[line]); }
};

template <class Policy>
struct SetScore {
  SetsRef<Policy> sets;
  ScoresRef scores;

  LSM_HOST_DEVICE void operator()(int64_t line) const {
    const int64_t id = sets.tags[line];
    if (id != kEmptyTag) sets.policy.set_score(sets.lines[line], scores.of(id));
  }
};

}  // namespace lsm::cache
