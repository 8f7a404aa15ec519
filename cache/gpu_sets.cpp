// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// WindowSets on a GPU, which decides about a whole batch at once.
#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "cache/window_sets.h"

namespace lsm::cache {
namespace {

class GpuSets final : public WindowSets {
 public:
  GpuSets(std::unique_ptr<GpuSetCache> cache, std::shared_ptr<ThreadPool> pool)
      : pool_(std::move(pool)), cache_(std::move(cache)) {}

  bool needs_scores() const override { return cache_->needs_scores(); }

  std::optional<std::span<const uint32_t>> push(std::span<const int64_t> ids) override {
    cache_->push(ids);
    batches_.emplace_back(ids.begin(), ids.end());
    return std::nullopt;
  }
  int64_t end_batch() const override {
    return first_batch_ + static_cast<int64_t>(batches_.size());
  }
  bool is_batch(std::span<const int64_t> ids, int64_t b) const override {
    return std::ranges::equal(ids, batches_[b - first_batch_]);
  }

  void refresh() override {
    if (cache_->refreshes()) cache_->refresh();
  }

  std::span<const Leaving> decide(const Buffers& buffers, Plan* plan) override {
    plan->ids = std::move(batches_.front());
    batches_.pop_front();
    ++first_batch_;
    plan->source.resize(plan->ids.size());
    find_buffered(buffers, plan);
    Decisions decisions;
    decisions.buffered = buffered_;
    decisions.source = plan->source;
    decisions.leaving = std::move(leaving_);
    cache_->decide(static_cast<uint32_t>(plan->iteration), &decisions);
    leaving_ = std::move(decisions.leaving);
    plan->on_gpu = std::move(decisions.moves);
    plan->counters.evictions = decisions.num_evictions;
    plan->counters.bypasses = decisions.num_bypasses;
    return leaving_;
  }

  void list_moves(Plan*) const override {}

  void set_scores(Scores scores) override { cache_->set_scores(scores); }

  int64_t num_bytes() const override { return cache_->num_bytes(); }
  int64_t window_bytes() const override {
    int64_t bytes = cache_->window_bytes();
    for (const auto& ids : batches_) bytes += sizeof(ids) + ids.capacity() * sizeof(int64_t);
    return bytes;
  }
  int64_t window_entries() const override { return cache_->window_entries(); }

 private:
  /// Writes the requests to buffered_ that tiers beside the cache serve, and lists the victims.
  void find_buffered(const Buffers& buffers, Plan* plan) {
    buffered_.clear();
    if (buffers.are_empty()) return;
    const int64_t count = static_cast<int64_t>(plan->ids.size());
    slot_.resize(count);
    pool_->parallel_for(count, kLookUpGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        plan->source[i] = buffers.find(plan->ids[i], &slot_[i]);
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      if (plan->source[i] == RowSource::kStorage) continue;
      const bool is_victim = plan->source[i] == RowSource::kVictim;
      const int64_t slot = is_victim ? buffers.victims.find(plan->ids[i]) : slot_[i];
      buffered_.push_back({slot, static_cast<uint32_t>(i), plan->source[i]});
      if (!is_victim) continue;
      plan->victim_position.push_back(i);
      plan->victim_slot.push_back(slot);
    }
  }

  const std::shared_ptr<ThreadPool> pool_;
  const std::unique_ptr<GpuSetCache> cache_;
  std::deque<std::vector<int64_t>> batches_;  // of the window
  int64_t first_batch_ = 0;
  // State of the iteration that is planned; members, to keep their memory.
  std::vector<int64_t> slot_;
  std::vector<BufferedRow> buffered_;
  std::vector<Leaving> leaving_;
};

}  // namespace

std::unique_ptr<WindowSets> make_gpu_sets(std::unique_ptr<GpuSetCache> cache,
                                          std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<GpuSets>(std::move(cache), std::move(pool));
}

}  // namespace lsm::cache
