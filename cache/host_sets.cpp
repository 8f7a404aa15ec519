// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// WindowSets on the host: first all look-ups of a batch, then its candidates for lines, set by set.
#include <algorithm>
#include <utility>
#include <vector>

#include "cache/next_use_chain.h"
#include "cache/window_sets.h"

namespace lsm::cache {
namespace {

bool asks_line(RowSource source) {
  return source == RowSource::kVictim || source == RowSource::kStorage;
}

class HostSets final : public WindowSets {
 public:
  HostSets(const PlannerConfig& config, Scores scores, const FixedTiers& fixed,
           std::shared_ptr<ThreadPool> pool)
      : pool_(std::move(pool)),
        fixed_(fixed),
        num_nodes_(config.num_nodes),
        cache_(make_set_cache(config, scores)),
        ways_(config.ways),
        num_sets_(config.num_lines / config.ways),
        links_(cache_->uses_window() || victim_mode(config.victim_mode) != VictimMode::kNone),
        offsets_(num_sets_ + 1) {}

  bool needs_scores() const override { return cache_->needs_scores(); }
  bool keep_victims() const override { return false; }

  std::optional<std::span<const uint32_t>> push(std::span<const int64_t> ids) override {
    check_ids(ids, num_nodes_);
    const std::span<const uint32_t> unlinked = chain_.push(ids);
    const int64_t batch = chain_.end_batch() - 1;
    const bool is_filled = chain_.first_batch() > 0;  // before the first plan all lines are empty
    if (links_ && is_filled) cache_->link(ids, unlinked, static_cast<uint32_t>(batch));
    return unlinked;
  }
  void tag_victims(int64_t) override {}
  int64_t end_batch() const override { return chain_.end_batch(); }
  bool is_batch(std::span<const int64_t> ids, int64_t b) const override {
    return std::ranges::equal(ids, chain_.batch(b),
                              [](int64_t id, const Occurrence& row) { return id == row.id(); });
  }

  void refresh() override {
    if (!cache_->refreshes()) return;
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 16) / ways_);
    pool_->parallel_for(num_sets_, grain,
                        [&](int64_t begin, int64_t end) { cache_->refresh(begin, end); });
  }

  std::span<const Leaving> decide(std::span<const VictimBuffer::Row> due, Plan* plan) override {
    look_up(plan);
    for (const auto& row : due) plan->source[row.position] = RowSource::kVictim;
    bucket_candidates(plan);
    for (const auto& row : due) plan->slot[row.position] = row.slot;
    plan->count_sources();
    place_candidates(static_cast<uint32_t>(plan->iteration));
    chain_.retire();
    for (size_t i = 0; i < lines_.size(); ++i) {
      plan->counters.bypasses += lines_[i] < 0;
      plan->counters.evictions += evicts(i);
    }
    return leaving_;
  }

  void list_moves(Plan* plan) const override {
    const size_t count = lines_.size();
    plan->insert_position.reserve(count);
    plan->insert_line.reserve(count);
    plan->evict_line.reserve(count);
    plan->evict_slot.reserve(count);
    plan->evict_word.reserve(count);
    plan->add_moves(count,
                    [&](size_t i) { return Move{candidates_[i].position, lines_[i], evicts(i)}; });
  }

  void set_scores(Scores scores) override { cache_->set_scores(scores); }

  int64_t num_bytes() const override {
    return cache_->num_bytes() + num_sets_ * int64_t{sizeof(offsets_[0])};
  }
  int64_t victim_bytes() const override { return 0; }
  int64_t window_bytes() const override { return chain_.num_bytes(); }
  int64_t window_entries() const override { return chain_.num_entries(); }

 private:
  bool evicts(size_t i) const { return lines_[i] >= 0 && leaving_[i].id != kEmptyTag; }

  /// Finds every request; leaves -1 - its set in the slots of those that ask for a line.
  void look_up(Plan* plan) {
    const int64_t t = plan->iteration;
    const int64_t count = static_cast<int64_t>(chain_.batch(t).size());
    accesses_.resize(count);
    plan->ids.resize(count);
    plan->source.resize(count);
    plan->slot.resize(count);
    pool_->parallel_for(count, kLookUpGrain, [&](int64_t begin, int64_t end) {
      chain_.read(t, begin, end, accesses_.data());
      cache_->look_up({&accesses_[begin], static_cast<size_t>(end - begin)},
                      static_cast<uint32_t>(t), plan->slot.data() + begin);
      for (int64_t i = begin; i < end; ++i) {
        plan->ids[i] = accesses_[i].id;
        plan->source[i] =
            plan->slot[i] >= 0 ? RowSource::kCache : fixed_.find(plan->ids[i], &plan->slot[i]);
      }
    });
  }

  /// Sorts the requests that ask for a line by set.
  void bucket_candidates(Plan* plan) {
    const int64_t count = static_cast<int64_t>(plan->source.size());
    std::fill(offsets_.begin(), offsets_.end(), 0);
    for (int64_t i = 0; i < count; ++i) {
      if (asks_line(plan->source[i])) ++offsets_[-1 - plan->slot[i]];
    }
    uint32_t num_candidates = 0;
    for (uint32_t& offset : offsets_) offset = num_candidates += offset;
    candidates_.resize(num_candidates);
    lines_.resize(num_candidates);
    leaving_.resize(num_candidates);
    // From the last on, so that the ends of the sets become their beginnings.
    for (int64_t i = count - 1; i >= 0; --i) {
      if (!asks_line(plan->source[i])) continue;
      candidates_[--offsets_[-1 - plan->slot[i]]] = {accesses_[i], static_cast<uint32_t>(i)};
      plan->slot[i] = -1;
    }
  }

  void place_candidates(uint32_t t) {
    const Candidates candidates = {t, candidates_, offsets_, lines_, leaving_};
    const int64_t grain = std::max<int64_t>(1, num_sets_ / (8 * pool_->num_threads()));
    pool_->parallel_for(num_sets_, grain,
                        [&](int64_t begin, int64_t end) { cache_->place(candidates, begin, end); });
  }

  const std::shared_ptr<ThreadPool> pool_;
  const FixedTiers fixed_;
  const int64_t num_nodes_;
  const std::unique_ptr<SetCache> cache_;
  const int64_t ways_;
  const int64_t num_sets_;
  const bool links_;  // something uses the next uses of lines
  NextUseChain chain_;
  // State of the iteration that is planned; members, to keep their memory.
  std::vector<Access> accesses_;
  std::vector<uint32_t> offsets_;      // [num_sets + 1]
  std::vector<Candidate> candidates_;  // by set
  std::vector<int64_t> lines_;         // of candidates_
  std::vector<Leaving> leaving_;       // for candidates_
};

}  // namespace

std::unique_ptr<WindowSets> make_host_sets(const PlannerConfig& config, Scores scores,
                                           const FixedTiers& fixed,
                                           std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<HostSets>(config, scores, fixed, std::move(pool));
}

}  // namespace lsm::cache
