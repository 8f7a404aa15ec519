// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Plans what happens to one owner's cache, from ids alone: batches enter the window, plans leave
// it. Integers only; the executor moves the bytes later.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/config.h"
#include "cache/id_map.h"
#include "cache/next_use_chain.h"
#include "cache/plan.h"
#include "cache/set_cache.h"
#include "cache/victim_buffer.h"
#include "kernels/core/thread_pool.h"

namespace lsm::cache {

/// What a planner knows of the graph. Ids of a list are distinct; scores are finite and >= 0 and
/// are not copied.
struct PlannerInput {
  Scores scores;
  std::span<const int64_t> static_ids;
  std::span<const int64_t> constant_ids;
  std::span<const std::span<const int64_t>> trace;  // belady only: all batches
};

/// One owner's planner. The plans are a function of the arguments, whatever the number of threads.
/// Not thread-safe. Throws ArgumentError on bad input, and is then as it was before the call.
class Planner {
 public:
  Planner(const PlannerConfig& config, const PlannerInput& input, std::shared_ptr<ThreadPool> pool);

  /// Batch num_pushed() enters the window: distinct ids, in the order of the requests. At most
  /// config.window batches may wait for their plans.
  void push(std::span<const int64_t> ids);

  /// Plans iteration num_planned(), whose batch then leaves the window.
  void plan(Plan* plan);

  int64_t num_pushed() const { return num_pushed_; }
  int64_t num_planned() const { return chain_.first_batch(); }
  const IdMap& static_ids() const { return static_ids_; }
  const IdMap& constant_ids() const { return constant_ids_; }
  int64_t line_bytes() const { return cache_->num_bytes(); }
  int64_t window_bytes() const { return chain_.num_bytes(); }
  int64_t window_entries() const { return chain_.num_entries(); }

 private:
  void check_ids(std::span<const int64_t> ids) const;
  void check_against_trace(std::span<const int64_t> ids) const;
  void refresh_lines();
  void look_up(std::span<const Occurrence> batch, Plan* plan);
  Source find_in_buffers(int64_t id, int64_t* slot) const;
  void bucket_candidates(std::span<const Occurrence> batch, Plan* plan);
  void place_candidates(uint32_t t);
  void record_moves(Plan* plan);
  int64_t spill(int64_t id, uint32_t next_use, Plan* plan);
  void drop_displaced(Plan* plan);

  PlannerConfig config_;
  bool has_trace_;
  std::shared_ptr<ThreadPool> pool_;
  IdMap static_ids_;
  IdMap constant_ids_;
  NextUseChain chain_;
  std::unique_ptr<SetCache> cache_;
  VictimBuffer victims_;
  int64_t num_sets_;
  int64_t num_pushed_ = 0;

  // Of the iteration that is planned; members to keep their memory.
  std::vector<uint32_t> offsets_;      // [num_sets + 1]
  std::vector<Candidate> candidates_;  // by set
  std::vector<Outcome> outcomes_;      // of candidates_
  bool has_displaced_ = false;         // a row that entered the victim buffer may have left again
};

}  // namespace lsm::cache
