// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The sets of a planner's cache together with the window's batches, on the host or on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cache/config.h"
#include "cache/gpu_set_cache.h"
#include "cache/id_map.h"
#include "cache/plan.h"
#include "cache/set_cache.h"
#include "cache/victim_buffer.h"
#include "kernels/core/thread_pool.h"

namespace lsm::cache {

/// Ids that one task looks up at a time.
inline constexpr int64_t kLookUpGrain = 4096;

/// The tiers other than the cache, whose rows stay.
struct FixedTiers {
  const IdMap& static_ids;
  const IdMap& constant_ids;

  /// The tier of a row that is in no other, and its slot there; kStorage leaves the slot as it is.
  /// No row is in two tiers, so their order is free.
  RowSource find(int64_t id, int64_t* slot) const {
    int64_t found;
    if ((found = static_ids.find(id)) >= 0) {
      *slot = found;
      return RowSource::kStatic;
    }
    if ((found = constant_ids.find(id)) >= 0) {
      *slot = found;
      return RowSource::kConstant;
    }
    return RowSource::kStorage;
  }
  bool are_empty() const { return static_ids.size() == 0 && constant_ids.size() == 0; }
};

/// Not thread-safe. Batches are numbered from 0.
class WindowSets {
 public:
  virtual ~WindowSets() = default;

  /// True if rows that leave come with their scores.
  virtual bool needs_scores() const = 0;
  /// True if the victim buffer's book-keeping is here too.
  virtual bool keep_victims() const = 0;

  /// Adds a batch to the window. Its ids' lines without a next use get this batch. Returns the
  /// positions of the ids that the window did not hold, valid until the next call, if they are
  /// known here. Throws ArgumentError, and changes nothing, if an id is repeated or out of range.
  virtual std::optional<std::span<const uint32_t>> push(std::span<const int64_t> ids) = 0;
  /// Batch `b` of the window is requested: rows in a victim buffer here may wait for it from now
  /// on.
  virtual void tag_victims(int64_t b) = 0;
  /// One more than the number of the batch pushed last.
  virtual int64_t end_batch() const = 0;
  /// True if `ids` are those of batch `b`, which is in the window.
  virtual bool is_batch(std::span<const int64_t> ids, int64_t b) const = 0;

  /// Refreshes the reuse data of all lines from the window, for policies that ask for it.
  virtual void refresh() = 0;

  /// Decides about batch plan->iteration, the first of the window, which then leaves it: writes
  /// source, the lists of misses and victims and, on the host, ids and slot; counts all but the
  /// rows that are spilled elsewhere. `due`: its rows in a victim buffer elsewhere. Returns the
  /// rows that leave the device for such a buffer, one for each row that asked for a line, valid
  /// until the next call; none if there is no such buffer.
  virtual std::span<const Leaving> decide(std::span<const VictimBuffer::Row> due, Plan* plan) = 0;
  /// Lists the moves of the plan decided last, whose rows leave for plan->leaving_slot; a GPU keeps
  /// its moves.
  virtual void list_moves(Plan* plan) const = 0;

  /// Uses `scores` for all further decisions.
  virtual void set_scores(Scores scores) = 0;

  virtual int64_t num_bytes() const = 0;
  /// Of a victim buffer here.
  virtual int64_t victim_bytes() const = 0;
  virtual int64_t window_bytes() const = 0;
  virtual int64_t window_entries() const = 0;
};

/// Sets of the host, shared by the threads of `pool`. `scores` is not copied.
std::unique_ptr<WindowSets> make_host_sets(const PlannerConfig& config, Scores scores,
                                           const FixedTiers& fixed,
                                           std::shared_ptr<ThreadPool> pool);
/// Sets of a GPU or its twin, which also keeps the batches and the rows of the victim buffer; the
/// host keeps the fixed tiers.
std::unique_ptr<WindowSets> make_gpu_sets(std::unique_ptr<GpuSetCache> cache,
                                          const FixedTiers& fixed,
                                          std::shared_ptr<ThreadPool> pool);

}  // namespace lsm::cache
