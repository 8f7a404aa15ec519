// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// WindowSets on a GPU, which decides about a whole batch at once. The host looks at no id but those
// that fixed tiers hold.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "cache/window_sets.h"

namespace lsm::cache {
namespace {

class GpuSets final : public WindowSets {
 public:
  GpuSets(std::unique_ptr<GpuSetCache> cache, const FixedTiers& fixed,
          std::shared_ptr<ThreadPool> pool)
      : pool_(std::move(pool)), fixed_(fixed), cache_(std::move(cache)) {}

  bool needs_scores() const override { return cache_->needs_scores(); }
  bool keep_victims() const override { return true; }

  std::optional<std::span<const uint32_t>> push(std::span<const int64_t> ids) override {
    cache_->push(ids);
    in_fixed_tiers_.push_back(find_fixed(ids));
    return std::nullopt;
  }
  void tag_victims(int64_t b) override {
    cache_->tag_victims(b);
    num_pushed_ = b + 1;
  }
  int64_t end_batch() const override {
    return first_batch_ + static_cast<int64_t>(in_fixed_tiers_.size());
  }
  bool is_batch(std::span<const int64_t> ids, int64_t b) const override {
    return std::ranges::equal(ids, cache_->batch(b));
  }

  void refresh() override {
    if (cache_->refreshes()) cache_->refresh();
  }

  std::span<const Leaving> decide(std::span<const VictimBuffer::Row>, Plan* plan) override {
    const std::vector<BufferedRow> buffered = std::move(in_fixed_tiers_.front());
    in_fixed_tiers_.pop_front();
    ++first_batch_;
    Decisions decisions;
    decisions.buffered = buffered;
    decisions.num_pushed = num_pushed_;
    decisions.source = std::move(plan->source);
    decisions.miss_id = std::move(plan->miss_id);
    cache_->decide(static_cast<uint32_t>(plan->iteration), &decisions);
    plan->source = std::move(decisions.source);
    plan->miss_id = std::move(decisions.miss_id);
    plan->victim_position = std::move(decisions.victim_position);
    plan->victim_slot = std::move(decisions.victim_slot);
    plan->on_gpu = std::move(decisions.moves);
    count(decisions, plan);
    return {};
  }

  void list_moves(Plan*) const override {}

  void set_scores(Scores scores) override { cache_->set_scores(scores); }

  int64_t num_bytes() const override { return cache_->num_bytes(); }
  int64_t victim_bytes() const override { return cache_->victim_bytes(); }
  int64_t window_bytes() const override {
    int64_t bytes = cache_->window_bytes();
    for (const auto& rows : in_fixed_tiers_) {
      bytes += sizeof(rows) + rows.capacity() * sizeof(BufferedRow);
    }
    return bytes;
  }
  int64_t window_entries() const override { return cache_->window_entries(); }

 private:
  /// The requests that fixed tiers serve.
  std::vector<BufferedRow> find_fixed(std::span<const int64_t> ids) {
    std::vector<BufferedRow> found;
    if (fixed_.are_empty()) return found;
    const int64_t count = static_cast<int64_t>(ids.size());
    tier_.resize(count);
    slot_.resize(count);
    pool_->parallel_for(count, kLookUpGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) tier_[i] = fixed_.find(ids[i], &slot_[i]);
    });
    for (int64_t i = 0; i < count; ++i) {
      if (tier_[i] != RowSource::kStorage) {
        found.push_back({slot_[i], static_cast<uint32_t>(i), tier_[i]});
      }
    }
    return found;
  }

  static void count(const Decisions& decisions, Plan* plan) {
    Counters& counters = plan->counters;
    counters.requests = std::ssize(plan->source);
    for (const BufferedRow& row : decisions.buffered) {
      ++(row.source == RowSource::kStatic ? counters.static_hits : counters.constant_hits);
    }
    counters.victim_hits = std::ssize(plan->victim_slot);
    counters.misses = std::ssize(plan->miss_id);
    counters.hits = counters.requests - counters.static_hits - counters.constant_hits -
                    counters.victim_hits - counters.misses;
    counters.evictions = decisions.num_evictions;
    counters.bypasses = decisions.num_bypasses;
    counters.spilled = decisions.num_spilled;
    counters.victim_overflow = decisions.num_lost;
  }

  const std::shared_ptr<ThreadPool> pool_;
  const FixedTiers fixed_;
  const std::unique_ptr<GpuSetCache> cache_;
  std::deque<std::vector<BufferedRow>> in_fixed_tiers_;  // by batch of the window
  int64_t first_batch_ = 0;
  int64_t num_pushed_ = 0;
  // Working memory.
  std::vector<RowSource> tier_;
  std::vector<int64_t> slot_;
};

}  // namespace

std::unique_ptr<WindowSets> make_gpu_sets(std::unique_ptr<GpuSetCache> cache,
                                          const FixedTiers& fixed,
                                          std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<GpuSets>(std::move(cache), fixed, std::move(pool));
}

}  // namespace lsm::cache
