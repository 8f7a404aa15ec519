// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Plans the moves of one owner's cache from ids alone: batches enter the window, plans leave it.
// Integers only; the executor moves the bytes later.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cache/config.h"
#include "cache/gpu_set_cache.h"
#include "cache/id_map.h"
#include "cache/next_use_chain.h"
#include "cache/plan.h"
#include "cache/set_cache.h"
#include "cache/victim_buffer.h"
#include "kernels/core/thread_pool.h"

namespace lsm::cache {

/// A planner's knowledge of the graph. Ids of a list are distinct. Scores are finite and >= 0, and
/// are not copied.
struct PlannerInput {
  Scores scores;
  std::span<const int64_t> static_ids;
  std::span<const int64_t> constant_ids;
  std::span<const std::span<const int64_t>> trace;  // belady only: all batches
};

/// One owner's planner. The plans are a function of the arguments, whatever the number of threads.
/// Not thread-safe. Throws ArgumentError on bad input, and is unchanged then.
class Planner {
 public:
  Planner(const PlannerConfig& config, const PlannerInput& input, std::shared_ptr<ThreadPool> pool);
  /// A planner with other sets, made for the same config and scores.
  Planner(const PlannerConfig& config, const PlannerInput& input, std::shared_ptr<ThreadPool> pool,
          std::unique_ptr<GpuSetCache> batch_sets);

  /// Adds batch num_pushed() to the window: distinct ids, in request order. At most config.window
  /// batches may wait for their plans. ids[rank_starts[r]] is the first id that rank r is the first
  /// to request; without `rank_starts` rank 0 requests all.
  void push(std::span<const int64_t> ids, std::span<const int64_t> rank_starts = {});

  /// Plans iteration num_planned(), whose batch then leaves the window.
  void plan(Plan* plan);

  /// Uses these static scores from the next plan on, also for rows in the cache. Static and
  /// constant ids stay. Scores are as in PlannerInput.
  void set_scores(Scores scores);

  int64_t num_pushed() const { return num_pushed_; }
  int64_t num_planned() const { return num_planned_; }
  const IdMap& static_ids() const { return static_ids_; }
  const IdMap& constant_ids() const { return constant_ids_; }
  int64_t line_bytes() const {
    return batch_sets_ ? batch_sets_->num_bytes() : cache_->num_bytes();
  }
  int64_t window_bytes() const;
  int64_t victim_bytes() const { return victims_.num_bytes(); }
  int64_t window_entries() const {
    return batch_sets_ ? batch_sets_->window_entries() : chain_.num_entries();
  }

 private:
  /// The victim slot (-1: none) and the word of a row that leaves the cache.
  struct Spilled {
    int64_t slot = -1;
    int64_t word = 0;
  };

  void check_ids(std::span<const int64_t> ids) const;
  void check_against_trace(std::span<const int64_t> ids) const;
  bool is_batch(std::span<const int64_t> ids, int64_t b) const;
  std::span<const uint32_t> enter(std::span<const int64_t> ids);
  void tag_victims(std::span<const int64_t> ids, std::span<const uint32_t> unlinked);
  void refresh_lines(int64_t t);
  void decide_on_sets(Plan* plan);
  void decide_on_batch(Plan* plan);
  void find_buffered(Plan* plan);
  void look_up(Plan* plan);
  RowSource find_in_buffers(int64_t id, int64_t* slot) const;
  void bucket_candidates(Plan* plan);
  void place_candidates(uint32_t t);
  void record_moves(Plan* plan);
  template <class LeavingOf>
  void spill_leaving(Plan* plan, size_t count, const LeavingOf& leaving_of);
  Spilled spill(const Leaving& row, Plan* plan);
  uint32_t score_of(int64_t id) const;
  void prefetch_score(size_t i) const;
  uint64_t word_of(uint32_t next_use, uint32_t position) const;

  PlannerConfig config_;
  bool has_trace_;
  std::shared_ptr<ThreadPool> pool_;
  IdMap static_ids_;
  IdMap constant_ids_;
  NextUseChain chain_;                        // empty if there are batch_sets_
  std::deque<std::vector<int64_t>> batches_;  // the window's batches, if there are batch_sets_
  std::unique_ptr<GpuSetCache> batch_sets_;
  std::unique_ptr<SetCache> cache_;  // null if there are batch_sets_
  VictimBuffer victims_;
  Scores scores_;
  int64_t num_sets_;
  bool has_outcome_scores_;  // outcomes hold the scores of rows without a line
  int64_t num_pushed_ = 0;
  int64_t num_planned_ = 0;
  std::deque<std::vector<int64_t>> rank_starts_;  // of the batches pushed and not planned

  /// A row of the victim buffer that a batch pushed since the last plan requests.
  struct Tag {
    uint32_t next_use;
    int64_t slot;
    uint64_t word;
  };
  std::vector<Tag> tags_;

  // State of the iteration that is planned; members, to keep their memory.
  std::vector<Access> accesses_;
  std::vector<uint32_t> offsets_;      // [num_sets + 1]
  std::vector<Candidate> candidates_;  // by set
  std::vector<Outcome> outcomes_;      // of candidates_
  std::vector<BufferedRow> buffered_;
  std::vector<Leaving> leaving_;
  bool has_displaced_ = false;  // a row of the victim buffer has given way to another
};

}  // namespace lsm::cache
