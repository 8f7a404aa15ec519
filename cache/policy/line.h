// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The metadata of a line: a 64-bit tag and at most 16 bytes of reuse data. Sized by the cache,
// never by the dataset.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/core/macros.h"

namespace lsm::cache {

/// The tag of a line that holds no row; ids are not negative.
inline constexpr int64_t kEmptyTag = -1;
/// Batch 0 comes before every other, so it is no next use.
inline constexpr uint32_t kNoNextUse = 0;
inline constexpr uint32_t kMaxIterations = 0xFFFFFFFEu;

/// Reuse data of one line. `word`s belong to the policy.
template <int kWords>
struct Line {
  uint32_t touched;   // 1 + the iteration of the last hit, or of the insertion
  uint32_t next_use;  // first batch in the window after that iteration, or kNoNextUse
  uint32_t word[kWords];
};
static_assert(sizeof(Line<2>) == 16);

/// Bits of a score: floats that are not negative order as their bits do.
LSM_HOST_DEVICE inline uint32_t score_bits(float score) {
  score += 0.0f;  // -0 becomes 0
  uint32_t bits;
  memcpy(&bits, &score, sizeof(bits));
  return bits;
}

/// A row from storage or from the victim buffer that is a candidate for a line.
struct Newcomer {
  int64_t id;
  uint32_t next_use;
  uint32_t score;  // score_bits() of the static score
};

/// The inputs of a decision besides the set: no clock and no hidden random state.
struct Turn {
  uint32_t t;          // the iteration that is planned
  uint32_t set;        // index of the set
  uint32_t evictions;  // from this set at this iteration, so far
};

/// One set, as a policy sees it. Does not own its memory.
template <class Policy>
struct SetView {
  int64_t* tags;                 // [ways]
  typename Policy::Line* lines;  // [ways]
  typename Policy::State* state;
  uint64_t* extra;  // [Policy::extra_words(ways)]
  int32_t ways;

  /// Lines touched or inserted at t are not evicted at t, but by a policy that ranks newcomers.
  LSM_HOST_DEVICE bool can_evict(int32_t way, const Turn& turn) const {
    return lines[way].touched != turn.t + 1;
  }
};

/// The nearer of two next uses has the higher rank; none ranks below all.
LSM_HOST_DEVICE constexpr uint64_t next_use_rank(uint32_t next_use) {
  return next_use == kNoNextUse ? 0 : (uint64_t{1} << 32) - next_use;
}

/// Defaults of a policy. A policy is trivially copyable and has either key(line, turn), where the
/// lowest key is evicted first, or pick_victim(set, turn), which returns a way, or -1 if no line
/// can be evicted. With key(newcomer, turn) too it ranks newcomers. With kNeedsScore, score(line)
/// is the score of a line, and set_score(line, score) replaces it.
struct PolicyDefaults {
  static constexpr bool kNeedsWindow = false;
  static constexpr bool kNeedsScore = false;
  static constexpr bool kRefreshes = false;

  using Line = cache::Line<2>;
  struct State {};
  LSM_HOST_DEVICE static constexpr int32_t extra_words(int32_t) { return 0; }

  template <class AnyLine>
  LSM_HOST_DEVICE void on_hit(AnyLine&) const {}
  template <class AnyLine>
  LSM_HOST_DEVICE void refresh(AnyLine&) const {}
  template <class Policy>
  LSM_HOST_DEVICE void on_insert(SetView<Policy>&, int32_t, const Newcomer&) const {}
};

/// A policy that compares newcomers with lines. Of the lines of a set and its newcomers, those with
/// the highest keys stay: the set takes its newcomers from the highest key down, evicts any line
/// whose key is lower, touched at t or not, and turns the rest away. So it evicts no line that it
/// inserted at t.
template <class Policy>
concept RanksNewcomers = requires(const Policy& policy, const Newcomer& row, const Turn& turn) {
  policy.key(row, turn);
};

/// Metadata of one set: tags, reuse data, next positions if they are kept, and the policy's state.
/// On the host, fingerprints of the tags too.
template <class Policy>
int64_t set_bytes(int32_t ways, bool keeps_positions, bool has_prints) {
  const int64_t line = sizeof(int64_t) + sizeof(typename Policy::Line) +
                       (keeps_positions ? sizeof(uint32_t) : 0) +
                       (has_prints ? sizeof(uint8_t) : 0);
  return ways * line + sizeof(typename Policy::State) +
         Policy::extra_words(ways) * sizeof(uint64_t);
}

}  // namespace lsm::cache
