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
#include "cache/plan.h"
#include "cache/victim_buffer.h"
#include "cache/window_sets.h"
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
  /// A planner whose sets are on a GPU, made for the same config and scores; null: on the host.
  Planner(const PlannerConfig& config, const PlannerInput& input, std::shared_ptr<ThreadPool> pool,
          std::unique_ptr<GpuSetCache> gpu_sets);

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
  int64_t line_bytes() const { return sets_->num_bytes(); }
  int64_t window_bytes() const;
  int64_t victim_bytes() const { return victims_.num_bytes() + sets_->victim_bytes(); }
  int64_t window_entries() const { return sets_->window_entries(); }

 private:
  std::unique_ptr<WindowSets> make_sets(Scores scores, std::shared_ptr<ThreadPool> pool,
                                        std::unique_ptr<GpuSetCache> gpu_sets) const;
  void check_against_trace(std::span<const int64_t> ids) const;
  void tag_victims(std::span<const int64_t> ids,
                   const std::optional<std::span<const uint32_t>>& positions);
  void list_tags(Plan* plan);
  void spill_leaving(std::span<const Leaving> leaving, Plan* plan);
  void offer_leaving(std::span<const Leaving> leaving);
  void prefetch_score(int64_t id) const;
  uint64_t word_of(uint32_t next_use, uint32_t position) const;

  PlannerConfig config_;
  bool has_trace_;
  IdMap static_ids_;
  IdMap constant_ids_;
  std::unique_ptr<WindowSets> sets_;
  VictimBuffer victims_;  // if it is not kept by the sets
  Scores scores_;
  bool has_leaving_scores_;  // rows that leave come with their scores
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

  // Working memory: the rows that leave for the victim buffer, and their moves.
  std::vector<VictimBuffer::Offer> offers_;
  std::vector<uint32_t> offered_;
};

}  // namespace lsm::cache
