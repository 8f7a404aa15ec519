// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// WindowSets on a GPU, which decides about a whole batch at once. The host looks at no id but those
// that enter tiers of its own.
#include <algorithm>
#include <bit>
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

  std::optional<std::span<const uint32_t>> push(std::span<const int64_t> ids) override {
    cache_->push(ids);
    in_fixed_tiers_.push_back(find_fixed(ids));
    return std::nullopt;
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

  std::span<const Leaving> decide(std::span<const VictimBuffer::Row> due, Plan* plan) override {
    buffered_ = std::move(in_fixed_tiers_.front());
    in_fixed_tiers_.pop_front();
    ++first_batch_;
    const auto num_fixed = buffered_.size();
    for (const auto& row : due) buffered_.push_back({row.slot, row.position, RowSource::kVictim});
    Decisions decisions;
    decisions.buffered = buffered_;
    decisions.num_victims = static_cast<int64_t>(due.size());
    decisions.source = std::move(plan->source);
    decisions.miss_id = std::move(plan->miss_id);
    decisions.leaving = std::move(leaving_);
    cache_->decide(static_cast<uint32_t>(plan->iteration), &decisions);
    leaving_ = std::move(decisions.leaving);
    plan->source = std::move(decisions.source);
    plan->miss_id = std::move(decisions.miss_id);
    plan->on_gpu = std::move(decisions.moves);
    list_victims(due, plan);
    count(decisions, num_fixed, plan);
    return leaving_;
  }

  void list_moves(Plan*) const override {}

  void set_scores(Scores scores) override { cache_->set_scores(scores); }

  int64_t num_bytes() const override { return cache_->num_bytes(); }
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

  /// Lists them by position: marked in a bit map, which is quicker than to sort them.
  void list_victims(std::span<const VictimBuffer::Row> due, Plan* plan) {
    if (due.empty()) return;
    marks_.assign(plan->source.size() / 64 + 1, 0);
    slot_.resize(plan->source.size());
    for (const auto& row : due) {
      marks_[row.position / 64] |= uint64_t{1} << row.position % 64;
      slot_[row.position] = row.slot;
    }
    plan->victim_position.reserve(due.size());
    plan->victim_slot.reserve(due.size());
    for (size_t word = 0; word < marks_.size(); ++word) {
      for (uint64_t left = marks_[word]; left != 0; left &= left - 1) {
        const auto position = static_cast<int64_t>(64 * word) + std::countr_zero(left);
        plan->victim_position.push_back(position);
        plan->victim_slot.push_back(slot_[position]);
      }
    }
  }

  void count(const Decisions& decisions, size_t num_fixed, Plan* plan) const {
    Counters& counters = plan->counters;
    counters.requests = std::ssize(plan->source);
    for (const BufferedRow& row : std::span(buffered_).first(num_fixed)) {
      ++(row.source == RowSource::kStatic ? counters.static_hits : counters.constant_hits);
    }
    counters.victim_hits = decisions.num_victims;
    counters.misses = std::ssize(plan->miss_id);
    counters.hits = counters.requests - counters.static_hits - counters.constant_hits -
                    counters.victim_hits - counters.misses;
    counters.evictions = decisions.num_evictions;
    counters.bypasses = decisions.num_bypasses;
  }

  const std::shared_ptr<ThreadPool> pool_;
  const FixedTiers fixed_;
  const std::unique_ptr<GpuSetCache> cache_;
  std::deque<std::vector<BufferedRow>> in_fixed_tiers_;  // by batch of the window
  int64_t first_batch_ = 0;
  // Working memory.
  std::vector<RowSource> tier_;
  std::vector<int64_t> slot_;
  std::vector<uint64_t> marks_;
  std::vector<BufferedRow> buffered_;
  std::vector<Leaving> leaving_;
};

}  // namespace

std::unique_ptr<WindowSets> make_gpu_sets(std::unique_ptr<GpuSetCache> cache,
                                          const FixedTiers& fixed,
                                          std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<GpuSets>(std::move(cache), fixed, std::move(pool));
}

}  // namespace lsm::cache
