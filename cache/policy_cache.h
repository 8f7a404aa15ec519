// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A set-associative cache under one policy. The loops are here, the decisions in set_loop.h. Memory
// latency dominates the cost, so sets are prefetched some ids before their turn.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "cache/byte_match.h"
#include "cache/pipelined.h"
#include "cache/set_cache.h"
#include "cache/set_loop.h"
#include "kernels/core/hash.h"
#include "kernels/core/host_array.h"
#include "kernels/core/modulus.h"
#include "kernels/core/prefetch.h"

namespace lsm::cache {

template <class Policy>
class PolicyCache final : public SetCache {
 public:
  /// With `keeps_positions`, lines keep their position in the batch of their next use.
  PolicyCache(const Policy& policy, int64_t num_lines, int64_t ways, Scores scores,
              bool keeps_positions)
      : policy_(policy),
        ways_(static_cast<int32_t>(ways)),
        num_sets_(num_lines / ways),
        modulus_(static_cast<uint64_t>(num_sets_)),
        extra_words_(Policy::extra_words(ways_)),
        scores_(scores),
        keeps_positions_(keeps_positions),
        states_(num_sets_),
        extra_(num_sets_ * extra_words_) {
    tags_.resize_discarding(num_lines);
    std::fill_n(tags_.data(), num_lines, kEmptyTag);
    lines_.resize_discarding(num_lines);
    std::memset(static_cast<void*>(lines_.data()), 0, num_lines * sizeof(Line));
    prints_.resize_discarding(num_lines + kMatchedBytes - 1);
    std::memset(prints_.data(), 0, num_lines + kMatchedBytes - 1);
    if (keeps_positions_) next_positions_.resize_discarding(num_lines);
  }

  bool uses_window() const override { return Policy::kNeedsWindow; }
  bool refreshes() const override { return Policy::kRefreshes; }
  bool needs_scores() const override { return Policy::kNeedsScore; }

  void look_up(std::span<const Access> batch, uint32_t t, int64_t* lines) override {
    find_lines(
        batch.size(), [&](size_t i) { return batch[i].id; },
        [&](size_t i, const Probe& probe) {
          lines[i] = probe.line < 0 ? -1 - probe.set : probe.line;
          if (probe.line < 0) return;
          Line& line = lines_[probe.line];
          line.touched = t + 1;
          line.next_use = batch[i].next_use;
          if (keeps_positions_) next_positions_[probe.line] = batch[i].next_position;
          policy_.on_hit(line);
        });
  }

  void link(std::span<const int64_t> ids, std::span<const uint32_t> positions,
            uint32_t batch) override {
    find_lines(
        positions.size(), [&](size_t i) { return ids[positions[i]]; },
        [&](size_t i, const Probe& probe) {
          if (probe.line < 0) return;
          Line& line = lines_[probe.line];
          if (line.next_use != kNoNextUse) return;
          line.next_use = batch;
          if (keeps_positions_) next_positions_[probe.line] = positions[i];
        });
  }

  void place(const Candidates& candidates, int64_t begin, int64_t end) override {
    // Scores are far apart in memory, a set's lines are next to each other.
    constexpr uint32_t kScoresAhead = 24;
    constexpr int64_t kSetsAhead = 4;
    const uint32_t last = candidates.offsets[end];
    std::vector<RankedNewcomer> ranked;  // of one set
    for (int64_t set = begin; set < end; ++set) {
      const int64_t later = std::min(set + kSetsAhead, end - 1);
      if (candidates.offsets[later] != candidates.offsets[later + 1]) prefetch_set(later);
      SetView<Policy> view = view_of(set);
      Turn turn = {candidates.t, static_cast<uint32_t>(set), 0};
      ranked.clear();
      for (uint32_t i = candidates.offsets[set]; i < candidates.offsets[set + 1]; ++i) {
        if (i + kScoresAhead < last) prefetch_score(candidates.rows[i + kScoresAhead].access.id);
        const Access& row = candidates.rows[i].access;
        const Newcomer newcomer = {row.id, row.next_use, score_of(row.id)};
        if constexpr (RanksNewcomers<Policy>) {
          ranked.push_back({policy_.key(newcomer, turn), i, newcomer.score});
        } else {
          write(candidates, i, set, newcomer,
                cache::place(OneLane(), policy_, view, turn, newcomer));
        }
      }
      if constexpr (RanksNewcomers<Policy>) place_best(candidates, &ranked, view, turn);
    }
  }

  void refresh(int64_t begin, int64_t end) override {
    for (int64_t line = begin * ways_; line < end * ways_; ++line) policy_.refresh(lines_[line]);
  }

  void set_scores(Scores scores) override {
    if constexpr (Policy::kNeedsScore) {
      scores_ = scores;
      for (int64_t line = 0; line < num_sets_ * ways_; ++line) {
        if (tags_[line] != kEmptyTag) policy_.set_score(lines_[line], score_of(tags_[line]));
      }
    }
  }

  int64_t num_bytes() const override {
    return num_sets_ * set_bytes<Policy>(ways_, keeps_positions_, true);
  }

 private:
  using Line = typename Policy::Line;
  using State = typename Policy::State;
  static constexpr int64_t kMaxPrefetchBytes = 1024;  // of one set; a larger one streams

  /// A newcomer of a policy that ranks them.
  struct RankedNewcomer {
    uint64_t key;
    uint32_t candidate;
    uint32_t score;

    /// Placed before `other`.
    bool operator<(const RankedNewcomer& other) const {
      return key != other.key ? key > other.key : candidate < other.candidate;
    }
  };

  /// Places the newcomers of a set from the best on, until one is turned away, as then are all.
  void place_best(const Candidates& candidates, std::vector<RankedNewcomer>* ranked,
                  SetView<Policy>& view, Turn& turn) {
    std::sort(ranked->begin(), ranked->end());
    Placement placement = {.way = 0};
    for (const auto& [_, candidate, score] : *ranked) {
      const Access& row = candidates.rows[candidate].access;
      const Newcomer newcomer = {row.id, row.next_use, score};
      if (placement.way >= 0) {
        placement = cache::place(OneLane(), policy_, view, turn, newcomer);
      }
      write(candidates, candidate, turn.set, newcomer, placement);
    }
  }

  /// Writes the outcome of candidate i of `set`.
  void write(const Candidates& candidates, uint32_t i, int64_t set, const Newcomer& newcomer,
             const Placement& placement) {
    const Access& row = candidates.rows[i].access;
    if (placement.way < 0) {
      candidates.lines[i] = -1;
      candidates.leaving[i] = {row.id, row.next_use, row.next_position, candidates.t + 1,
                               newcomer.score};
      return;
    }
    const int64_t line = set * ways_ + placement.way;
    prints_[line] = print_of(mix64(static_cast<uint64_t>(row.id)));
    candidates.lines[i] = line;
    candidates.leaving[i] = {placement.evicted_id, placement.evicted_next_use, 0,
                             placement.evicted_touched, placement.evicted_score};
    if (!keeps_positions_) return;
    candidates.leaving[i].next_position = std::exchange(next_positions_[line], row.next_position);
  }

  /// A look-up in flight: its set, and the fingerprint of its id.
  struct Probe {
    int64_t set;
    int64_t line;  // -1: none
    uint8_t print;
  };

  /// Never 0, which is the fingerprint of an empty line. The hash's low bits choose the set.
  static uint8_t print_of(uint64_t hash) { return std::max<uint8_t>(hash >> 56, 1); }

  Probe start(int64_t id) const {
    const uint64_t hash = mix64(static_cast<uint64_t>(id));
    const int64_t set = static_cast<int64_t>(modulus_(hash));
    const uint8_t* prints = &prints_[set * ways_];
    const int64_t bytes = std::clamp<int64_t>(ways_, kMatchedBytes, kMaxPrefetchBytes);
    for (int64_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(prints + offset);
    __builtin_prefetch(prints + bytes - 1);
    return {set, -1, print_of(hash)};
  }

  /// Calls check(line) for the lines of the set with the fingerprint until it returns true. Returns
  /// that line, or -1.
  template <class Check>
  int64_t find_match(const Probe& probe, const Check& check) const {
    constexpr int32_t kAtOnce = 2 * kMatchedBytes;
    const int64_t first = probe.set * ways_;
    for (int32_t way = 0; way < ways_; way += kAtOnce) {
      const uint8_t* prints = &prints_[first + way];
      const int32_t count = ways_ - way;
      uint32_t matches = match_bytes(prints, probe.print);
      if (count > kMatchedBytes) {
        matches |= match_bytes(prints + kMatchedBytes, probe.print) << kMatchedBytes;
      }
      if (count < kAtOnce) matches &= (uint32_t{1} << count) - 1;  // without those of later sets
      for (; matches != 0; matches &= matches - 1) {
        const int64_t line = first + way + std::countr_zero(matches);
        if (check(line)) return line;
      }
    }
    return -1;
  }

  /// Calls found(i, probe) for i in [0, count), with the line of id_of(i) in probe.
  template <class IdOf, class Found>
  void find_lines(size_t count, const IdOf& id_of, const Found& found) const {
    Probe probes[kUnderWay];
    const auto request = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) probes[i % kUnderWay] = start(id_of(i));
    };
    const auto locate = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        Probe& probe = probes[i % kUnderWay];
        probe.line = find_match(probe, [](int64_t) { return true; });
        if (probe.line < 0) continue;
        __builtin_prefetch(&tags_[probe.line]);
        __builtin_prefetch(&lines_[probe.line], 1);
        if (keeps_positions_) __builtin_prefetch(&next_positions_[probe.line], 1);
      }
    };
    const auto finish = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        Probe& probe = probes[i % kUnderWay];
        if (probe.line >= 0 && tags_[probe.line] != id_of(i)) {
          probe.line = find_match(probe, [&](int64_t line) { return tags_[line] == id_of(i); });
        }
        found(i, probe);
      }
    };
    run_pipelined(count, request, locate, finish);
  }

  SetView<Policy> view_of(int64_t set) {
    return {&tags_[set * ways_], &lines_[set * ways_], &states_[set],
            extra_.data() + set * extra_words_, ways_};
  }

  uint32_t score_of(int64_t id) const {
    return Policy::kNeedsScore ? ScoresRef(scores_).of(id) : 0;
  }

  LSM_ONLY_PREFETCHES void prefetch_score(int64_t id) const {
    if (Policy::kNeedsScore && id < static_cast<int64_t>(scores_.size())) {
      __builtin_prefetch(&scores_[id]);
    }
  }

  LSM_ONLY_PREFETCHES void prefetch_set(int64_t set) const {
    prefetch_array(&lines_[set * ways_]);
    prefetch_array(&tags_[set * ways_]);
    if (keeps_positions_) prefetch_array(&next_positions_[set * ways_]);
  }

  /// Prefetches an array of the set that begins with `first`.
  template <class T>
  LSM_ONLY_PREFETCHES void prefetch_array(const T* first) const {
    const int64_t bytes = std::min<int64_t>(ways_ * sizeof(T), kMaxPrefetchBytes);
    for (int64_t offset = 0; offset < bytes; offset += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(first) + offset, 1);
    }
  }

  Policy policy_;
  int32_t ways_;
  int64_t num_sets_;
  Modulus modulus_;  // of num_sets_
  int32_t extra_words_;
  Scores scores_;
  bool keeps_positions_;
  HostArray<int64_t> tags_;
  HostArray<Line> lines_;
  // One byte of each tag's hash; 0: empty. Longer by some that are read and not looked at.
  HostArray<uint8_t> prints_;
  // Not part of a line, because no decision depends on it. Valid where there is a next use.
  HostArray<uint32_t> next_positions_;
  std::vector<State> states_;
  std::vector<uint64_t> extra_;
};

}  // namespace lsm::cache
