// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuSetCache on a Backend: links the ids that enter the window, and buckets candidates by set, for
// a warp per set.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cache/gpu_moves_on_backend.h"
#include "cache/gpu_set_cache.h"
#include "cache/next_use_chain_on_backend.h"
#include "cache/set_cache_functors.h"
#include "cache/sets_on_backend.h"
#include "cache/victims_on_backend.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/core/ordered_sum.h"
#include "kernels/sample/sums_on_backend.h"

namespace lsm::cache {

template <class Backend>
class SetCacheOnBackend final : public GpuSetCache {
 public:
  /// `config` as checked by check_config().
  SetCacheOnBackend(std::unique_ptr<Backend> backend, const PlannerConfig& config, Scores scores)
      : memory_(std::make_shared<MovesMemory<Backend>>(std::move(backend))),
        num_nodes_(config.num_nodes),
        num_sets_(num_sets(config)),
        victims_(entered(), victim_mode(config.victim_mode), config.victim_rows,
                 std::max<int64_t>(config.window, 1)),
        sets_(make_sets(*backend_, config, num_sets_)) {
    counts_.assign(kNumCounts, 0);
    upload_scores(scores);
    backend_->synchronize();
  }

  ~SetCacheOnBackend() override { backend_->drain(); }

  bool refreshes() const override { return sets_->refreshes(); }
  bool needs_scores() const override { return sets_->needs_scores(); }

  void push(std::span<const int64_t> ids) override {
    change([&] {
      const EnteringRef entering = chain_.push(ids, num_nodes_);
      if (sets_->uses_window() || victims_.is_on()) sets_->link(entering);
    });
  }

  void tag_victims(int64_t b) override {
    if (!victims_.takes_unknown()) return;
    change([&] {
      const auto batch = chain_.find(b);
      victims_.tag(chain_.ref(), batch.first, batch.count, static_cast<uint32_t>(b));
    });
  }

  std::vector<int64_t> batch(int64_t b) override {
    const std::lock_guard lock(memory_->mutex());
    backend_->enter();
    return chain_.batch(b);
  }

  void refresh() override {
    change([&] { sets_->refresh(); });
  }

  void decide(uint32_t t, Decisions* decisions) override {
    change([&] { decide_first(t, decisions); });
  }

  void set_scores(Scores scores) override {
    if (!keeps_scores()) return;
    change([&] {
      backend_->synchronize();  // queued work may still read the present scores
      upload_scores(scores);
      sets_->set_scores(scores_ref());
      victims_.rank_again(scores_ref());
      backend_->synchronize();
    });
  }

  int64_t num_bytes() const override { return sets_->num_bytes() + num_scores_ * sizeof(float); }
  int64_t victim_bytes() const override { return victims_.num_bytes(); }
  int64_t window_bytes() const override { return chain_.num_bytes(); }
  int64_t window_entries() const override { return chain_.num_entries(); }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;

  /// Runs `work`, which changes the sets or the window. Throws std::runtime_error once such work
  /// has ended with an error: it may have changed a part of them. Ids that are refused change
  /// nothing.
  template <class Work>
  void change(const Work& work) {
    const std::lock_guard lock(memory_->mutex());
    if (!std::exchange(is_whole_, false)) {
      throw std::runtime_error(
          "planner: an earlier batch was not planned to its end, so plans may be wrong; its error "
          "was reported: open the features again");
    }
    backend_->enter();
    try {
      work();
    } catch (const ArgumentError&) {
      is_whole_ = true;
      throw;
    } catch (...) {
      settle();
      throw;
    }
    is_whole_ = true;
  }
  /// After an error: queued work uses memory of the caller, which may go.
  void settle() noexcept {
    try {
      backend_->synchronize();
    } catch (const std::exception&) {
      // The first error is the one to report.
    }
  }

  void decide_first(uint32_t t, Decisions* decisions) {
    const int64_t count = chain_.first_size();
    auto arrays = memory_->take();
    const BatchRef rows = {chain_.ref(),
                           arrays->ids.grow(count),
                           reinterpret_cast<RowSource*>(arrays->source.grow(count)),
                           arrays->slot.grow(count),
                           key_.grow(count),
                           position_.grow(count),
                           t};
    backend_->fill(rows.source, static_cast<int>(RowSource::kStorage), count * sizeof(RowSource));
    if (!decisions->buffered.empty()) {
      backend_->for_each(static_cast<int64_t>(decisions->buffered.size()),
                         SetBuffered{rows, buffered_.upload(decisions->buffered)});
    }
    sets_->look_up(victims_.ref(), rows, count);
    victims_.serve(t, rows.ids, rows.source, rows.slot, count);
    place(rows, count, *arrays);
    list_far(rows, count, *arrays);
    spill(count, static_cast<uint32_t>(decisions->num_pushed), *arrays);
    download(rows, count, decisions);
    chain_.retire();
    const int64_t num_misses = std::ssize(decisions->miss_id);
    const int64_t num_asking = num_misses + std::ssize(decisions->victim_slot);
    decisions->moves =
        std::make_shared<MovesOnBackend<Backend>>(memory_, std::move(arrays), count, num_misses,
                                                  num_asking, victims_.is_on() ? num_asking : 0);
  }

  Backend& entered() const {
    backend_->enter();
    return *backend_;
  }

  static uint32_t num_sets(const PlannerConfig& config) {
    const int64_t count = config.num_lines / config.ways;
    check_argument(count < UINT32_MAX,
                   "cache.num_lines: a planner on a GPU has fewer than 2^32 sets, got ", count);
    return static_cast<uint32_t>(count);
  }

  bool keeps_scores() const { return sets_->needs_scores() || victims_.takes_unknown(); }

  void upload_scores(Scores scores) {
    if (!keeps_scores()) return;
    scores_.upload(scores);
    num_scores_ = static_cast<int64_t>(scores.size());
  }
  ScoresRef scores_ref() const { return {scores_.data(), num_scores_}; }

  void place(const BatchRef& rows, int64_t count, MoveArrays<Backend>& arrays) {
    backend_->fill(counts_.data(), 0, kNumCounts * sizeof(int64_t));
    if (count == 0) return;
    uint32_t* const keys = sorted_key_.grow(count);
    uint32_t* const positions = arrays.position.grow(count);
    const int bits = std::bit_width(num_sets_);  // num_sets_ itself is a key
    backend_->sort_pairs(rows.key, keys, rows.position, positions, count, bits);
    const MovesRef moves = {arrays.line.grow(count), arrays.evicts.grow(count),
                            sets_->ranks_newcomers() ? order_.grow(count) : nullptr,
                            victims_.is_on() ? leaving_.grow(count) : nullptr, counts_.data()};
    sets_->place(scores_ref(), rows, keys, positions, count, moves);
  }

  void list_far(const BatchRef& rows, int64_t count, MoveArrays<Backend>& arrays) {
    const int64_t most_victims = victims_.is_on() ? count : 0;
    sums_.clear(OrderedSum<ListFar>::state_words(count));
    // download() takes as many as it expects of the lists, before it knows how many there are.
    sums_.run(
        ListFar{rows, count, arrays.miss_position.grow(count), miss_id_.grow_zeroed(count),
                victim_position_.grow_zeroed(most_victims), victim_slot_.grow_zeroed(most_victims),
                counts_.data() + kMisses, counts_.data() + kVictims},
        count);
  }

  void spill(int64_t count, uint32_t num_pushed, MoveArrays<Backend>& arrays) {
    if (!victims_.is_on()) return;
    const RanksRef ranks = {scores_ref(), sets_->needs_scores()};
    victims_.spill({leaving_.data(), sorted_key_.data(), count, ranks, num_sets_, num_pushed,
                    arrays.leaving_slot.grow(count), counts_.data() + kSpilled,
                    counts_.data() + kLost});
  }

  /// Waits once, unless there are far more misses or victims than in the last batch.
  void download(const BatchRef& rows, int64_t count, Decisions* decisions) {
    const auto fetch = [&](auto* values, const auto* array, int64_t size) {
      values->resize(static_cast<size_t>(size));
      backend_->download(values->data(), array, values->size() * sizeof((*values)[0]));
    };
    const auto fetch_lists = [&](int64_t num_misses, int64_t num_victims) {
      fetch(&decisions->miss_id, miss_id_.data(), num_misses);
      fetch(&decisions->victim_position, victim_position_.data(), num_victims);
      fetch(&decisions->victim_slot, victim_slot_.data(), num_victims);
    };
    const int64_t most = count - std::ssize(decisions->buffered);
    const int64_t expected_misses = std::min(most, most_misses_);
    const int64_t expected_victims = std::min(most, most_victims_);
    int64_t counts[kNumCounts];
    fetch(&decisions->source, rows.source, count);
    backend_->download(counts, counts_.data(), sizeof(counts));
    fetch_lists(expected_misses, expected_victims);
    backend_->synchronize();
    decisions->num_evictions = counts[kEvictions];
    decisions->num_bypasses = counts[kBypasses];
    decisions->num_spilled = counts[kSpilled];
    decisions->num_lost = counts[kLost];
    const int64_t num_misses = counts[kMisses], num_victims = counts[kVictims];
    victims_.note(num_victims, counts[kSpilled]);
    most_misses_ = num_misses + num_misses / 8 + 64;
    most_victims_ = victims_.is_on() ? num_victims + num_victims / 8 + 64 : 0;
    if (num_misses > expected_misses || num_victims > expected_victims) {
      fetch_lists(num_misses, num_victims);
      backend_->synchronize();
    }
    decisions->miss_id.resize(num_misses);
    decisions->victim_position.resize(num_victims);
    decisions->victim_slot.resize(num_victims);
  }

  enum Count { kEvictions, kBypasses, kMisses, kVictims, kSpilled, kLost, kNumCounts };

  const std::shared_ptr<MovesMemory<Backend>> memory_;  // outlives the arrays
  Backend* const backend_ = &memory_->backend();
  const int64_t num_nodes_;
  const uint32_t num_sets_;
  int64_t num_scores_ = 0;
  Array<float> scores_{*backend_};
  NextUseChainOnBackend<Backend> chain_{*backend_};
  VictimsOnBackend<Backend> victims_;
  const std::unique_ptr<SetsOnBackend> sets_;
  // State of the batch in decide().
  Array<BufferedRow> buffered_{*backend_};
  Array<uint32_t> key_{*backend_};
  Array<uint32_t> position_{*backend_};
  Array<uint32_t> sorted_key_{*backend_};
  Array<uint64_t> order_{*backend_};
  Array<Leaving> leaving_{*backend_};
  Array<int64_t> miss_id_{*backend_};
  Array<int64_t> victim_position_{*backend_};
  Array<int64_t> victim_slot_{*backend_};
  Array<int64_t> counts_{*backend_};
  SumsOnBackend<Backend> sums_{*backend_};
  int64_t most_misses_ = 0;  // that are expected
  int64_t most_victims_ = 0;
  bool is_whole_ = true;  // false: sets and window are being changed, or it failed
};

template <class Backend>
std::unique_ptr<GpuSetCache> make_set_cache_on_backend(std::unique_ptr<Backend> backend,
                                                       const PlannerConfig& config, Scores scores) {
  return std::make_unique<SetCacheOnBackend<Backend>>(std::move(backend), config, scores);
}

}  // namespace lsm::cache
