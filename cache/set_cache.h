// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The cache's metadata and the loops over it, behind an interface without the policy's type.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/config.h"
#include "cache/next_use_chain.h"
#include "cache/policy/line.h"
#include "kernels/core/macros.h"

namespace lsm::cache {

/// Static scores of ids [0, scores.size()); ids beyond score 0. Does not own the memory.
using Scores = std::span<const float>;

/// The row that leaves the device for a candidate: the one in its line, or the candidate itself.
struct Leaving {
  int64_t id;  // kEmptyTag: none
  uint32_t next_use;
  uint32_t next_position;  // if positions are kept
  uint32_t touched;        // 1 + the iteration that requested it last
  uint32_t score;          // if the policy needs scores
};

/// Scores in the memory of the host or of a GPU. Not owned. A row beyond them has none.
struct ScoresRef {
  ScoresRef(Scores scores) : ScoresRef(scores.data(), std::ssize(scores)) {}
  ScoresRef(const float* data, int64_t count) : scores(data), num_scores(count) {}

  LSM_HOST_DEVICE uint32_t of(int64_t id) const {
    return id < num_scores ? score_bits(scores[id]) : 0;
  }

  const float* scores;  // [num_scores]
  int64_t num_scores;
};

/// The rank in the victim buffer of a row that leaves without a next use.
struct RanksRef {
  ScoresRef scores;
  bool has_leaving_scores;  // rows that leave come with their scores

  LSM_HOST_DEVICE uint32_t of(const Leaving& row) const {
    if (scores.num_scores == 0) return row.touched;
    return has_leaving_scores ? row.score : scores.of(row.id);
  }
};

/// A candidate for a line.
struct Candidate {
  Access access;
  uint32_t position;  // in its batch
};

/// The candidates of one iteration, bucketed by set.
struct Candidates {
  uint32_t t;
  std::span<const Candidate> rows;    // sets ascending, within a set in request order
  std::span<const uint32_t> offsets;  // [num_sets + 1]: where the rows of each set begin
  std::span<int64_t> lines;           // out: the line that each row gets, or -1
  std::span<Leaving> leaving;         // out: the row that leaves for it
};

/// Calls for distinct ids, and calls of place() and refresh() for distinct sets, may run in
/// parallel; calls of different functions may not.
class SetCache {
 public:
  virtual ~SetCache() = default;

  /// True if the policy uses next uses.
  virtual bool uses_window() const = 0;
  virtual bool refreshes() const = 0;
  virtual bool needs_scores() const = 0;

  /// Touches the lines of a part of batch t. Writes to lines[i] the line of batch[i], or -1 - its
  /// set if it is not cached.
  virtual void look_up(std::span<const Access> batch, uint32_t t, int64_t* lines) = 0;

  /// Sets the next use of the lines that hold any of ids[positions[i]] and have none: `batch`, at
  /// these positions.
  virtual void link(std::span<const int64_t> ids, std::span<const uint32_t> positions,
                    uint32_t batch) = 0;

  /// Decides about the candidates of sets [begin, end).
  virtual void place(const Candidates& candidates, int64_t begin, int64_t end) = 0;

  /// Refreshes the reuse data of the lines of sets [begin, end) from the window.
  virtual void refresh(int64_t begin, int64_t end) = 0;

  /// Uses `scores`, which are not copied, for all further decisions.
  virtual void set_scores(Scores scores) = 0;

  virtual int64_t num_bytes() const = 0;
};

/// Metadata of one set, in a planner on the host or on a GPU. Reads the policy, ways and
/// victim_mode of `config`.
int64_t set_bytes_of(const PlannerConfig& config, bool on_gpu);

/// A cache as checked by check_config().
std::unique_ptr<SetCache> make_set_cache(const PlannerConfig& config, Scores scores);

}  // namespace lsm::cache
