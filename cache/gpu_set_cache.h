// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The sets of a cache that decides over a whole batch at once, and the next-use chain: on a GPU, or
// on the host as its twin. In the planner it replaces SetCache and NextUseChain.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/config.h"
#include "cache/gpu_moves.h"
#include "cache/next_use_chain.h"
#include "cache/plan.h"
#include "cache/set_cache.h"

namespace lsm::cache {

/// A request that a fixed tier serves, as the host knows.
struct BufferedRow {
  int64_t slot;
  uint32_t position;
  RowSource source;
};

/// The decisions of GpuSetCache::decide() about one batch.
struct Decisions {
  std::span<const BufferedRow> buffered;  // in
  int64_t num_pushed = 0;                 // in: batches that the victim buffer may know of
  std::vector<RowSource> source;          // out: [n] the tier
  std::vector<int64_t> miss_id;           // out: ids from storage, in request order
  std::vector<int64_t> victim_position;   // out: of the requests that the victim buffer serves
  std::vector<int64_t> victim_slot;       // out: of these
  int64_t num_evictions = 0;
  int64_t num_bypasses = 0;
  int64_t num_spilled = 0;
  int64_t num_lost = 0;  // Counters::victim_overflow
  std::shared_ptr<GpuMoves> moves;
};

/// Not thread-safe.
class GpuSetCache {
 public:
  virtual ~GpuSetCache() = default;

  virtual bool refreshes() const = 0;
  virtual bool needs_scores() const = 0;

  /// Adds a batch to the window as NextUseChain::push(), and checks it as check_ids(). Its ids'
  /// lines without a next use get this batch.
  virtual void push(std::span<const int64_t> ids) = 0;
  /// Batch `b` of the window is requested: rows in the victim buffer may wait for it from now on.
  virtual void tag_victims(int64_t b) = 0;
  /// The ids of batch `b` of the window. Blocks.
  virtual std::vector<int64_t> batch(int64_t b) = 0;
  /// Refreshes the reuse data of all lines from the window. May return before it has ended.
  virtual void refresh() = 0;
  /// Looks up the cache's requests of batch t, the first of the window, touches the lines hit, and
  /// decides about the candidates: rows from storage and from the victim buffer; the rows that
  /// leave enter that buffer or are dropped. Then the batch leaves the window. Moves stay in the
  /// memory of the GPU.
  virtual void decide(uint32_t t, Decisions* decisions) = 0;

  /// Uses `scores`, which are copied, for all further decisions.
  virtual void set_scores(Scores scores) = 0;

  virtual int64_t num_bytes() const = 0;
  virtual int64_t victim_bytes() const = 0;
  virtual int64_t window_bytes() const = 0;
  virtual int64_t window_entries() const = 0;
};

/// The place of a planner's sets.
enum class SetCachePlace : uint8_t {
  kHost,           // SetCache, made for the host
  kTwin,           // GpuSetCache, run by one host thread: for tests
  kTwinBackwards,  // the same, with items and lanes in the opposite order
  kGpu,            // GpuSetCache on a GPU
};

/// `scores` is copied. kTwin and kTwinBackwards only.
std::unique_ptr<GpuSetCache> make_twin_set_cache(const PlannerConfig& config, Scores scores,
                                                 SetCachePlace place);
/// On GPU `device`; waits take at most `timeout_secs`. Throws std::runtime_error where this was
/// built without CUDA.
std::unique_ptr<GpuSetCache> make_gpu_set_cache(const PlannerConfig& config, Scores scores,
                                                int device, double timeout_secs);

}  // namespace lsm::cache
