// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "cache/planner.h"

#include <algorithm>
#include <cmath>

#include "cache/metadata_word.h"
#include "kernels/core/check.h"
#include "kernels/core/huge_pages.h"
#include "kernels/core/prefetch.h"

namespace lsm::cache {
namespace {

PlannerConfig checked(PlannerConfig config) {
  check_config(config);
  config.window = std::max<int64_t>(config.window, 1);
  return config;
}

void check_scores(Scores scores) {
  for (size_t i = 0; i < scores.size(); ++i) {
    check_argument(std::isfinite(scores[i]) && scores[i] >= 0,
                   "scores: expected finite scores >= 0, got ", scores[i], " for node ", i);
  }
}

void check_size(std::span<const int64_t> ids) {
  check_argument(ids.size() < kMaxIterations, "ids: expected fewer than 2^32 ids in a batch");
}

void check_rank_starts(std::span<const int64_t> starts, int64_t num_ids) {
  if (starts.empty()) return;
  check_metadata_limits(1, static_cast<int64_t>(starts.size()), num_ids);
  check_argument(
      starts[0] == 0 && std::is_sorted(starts.begin(), starts.end()) && starts.back() <= num_ids,
      "rank_starts: expected positions that rise from 0 to at most the ", num_ids,
      " ids of the batch, got ", starts[0], " to ", starts.back());
}

}  // namespace

Planner::Planner(const PlannerConfig& config, const PlannerInput& input,
                 std::shared_ptr<ThreadPool> pool)
    : Planner(config, input, std::move(pool), nullptr) {}

Planner::Planner(const PlannerConfig& config, const PlannerInput& input,
                 std::shared_ptr<ThreadPool> pool, std::unique_ptr<GpuSetCache> gpu_sets)
    : config_(checked(config)),
      has_trace_(policy_kind(config.policy) == PolicyKind::kBelady),
      static_ids_(index_ids("static_ids", input.static_ids)),
      constant_ids_(index_ids("constant_ids", input.constant_ids)),
      sets_(make_sets(input.scores, std::move(pool), std::move(gpu_sets))),
      victims_(sets_->keep_victims() ? VictimMode::kNone : victim_mode(config.victim_mode),
               config.victim_rows, config_.window),
      scores_(input.scores),
      has_leaving_scores_(sets_->needs_scores()) {
  check_scores(input.scores);
  collapse_into_huge_pages(std::as_bytes(scores_));
  check_argument(has_trace_ || input.trace.empty(), "trace: only the policy 'belady' takes one");
  for (const std::span<const int64_t> ids : input.trace) {
    check_size(ids);
    sets_->push(ids);
  }
}

std::unique_ptr<WindowSets> Planner::make_sets(Scores scores, std::shared_ptr<ThreadPool> pool,
                                               std::unique_ptr<GpuSetCache> gpu_sets) const {
  const FixedTiers fixed = {static_ids_, constant_ids_};
  if (gpu_sets) return make_gpu_sets(std::move(gpu_sets), fixed, std::move(pool));
  return make_host_sets(config_, scores, fixed, std::move(pool));
}

void Planner::check_against_trace(std::span<const int64_t> ids) const {
  const int64_t end = sets_->end_batch();
  check_argument(num_pushed_ < end, "ids: the trace given to 'belady' has only ", end, " batches");
  check_argument(sets_->is_batch(ids, num_pushed_), "ids: batch ", num_pushed_,
                 " differs from that of the trace");
}

void Planner::push(std::span<const int64_t> ids, std::span<const int64_t> rank_starts) {
  check_argument(num_pushed_ - num_planned() < config_.window, "the window is full: its ",
                 config_.window, " batches wait for their plans; plan an iteration first");
  check_argument(num_pushed_ < kMaxIterations, "a planner makes at most 2^32 plans");
  check_rank_starts(rank_starts, static_cast<int64_t>(ids.size()));
  std::optional<std::span<const uint32_t>> unlinked;
  if (has_trace_) {
    check_against_trace(ids);
  } else {
    check_size(ids);
    unlinked = sets_->push(ids);
  }
  rank_starts_.emplace_back(rank_starts.begin(), rank_starts.end());
  ++num_pushed_;
  sets_->tag_victims(num_pushed_ - 1);
  if (victims_.takes_unknown()) tag_victims(ids, unlinked);
}

/// Tells the rows of the victim buffer that the batch pushed last asks for. `positions`: of the ids
/// that may be there, since a row of an id that the window holds has a next use.
void Planner::tag_victims(std::span<const int64_t> ids,
                          const std::optional<std::span<const uint32_t>>& positions) {
  const uint32_t t = static_cast<uint32_t>(num_pushed_ - 1);
  const auto tagged = [&](uint32_t position, int64_t slot) {
    tags_.push_back({t, slot, word_of(t, position)});
  };
  if (positions) {
    victims_.enter_window(t, ids, tagged, *positions);
  } else {
    victims_.enter_window(t, ids, tagged);
  }
}

void Planner::set_scores(Scores scores) {
  check_argument(!scores.empty(), "scores: expected one for each node, got none");
  check_scores(scores);
  collapse_into_huge_pages(std::as_bytes(scores));
  sets_->set_scores(scores);
  scores_ = scores;
  victims_.rank_again([this](int64_t id) { return ScoresRef(scores_).of(id); });
}

void Planner::plan(Plan* plan) {
  const int64_t t = num_planned();
  check_argument(t < num_pushed_, "plan of iteration ", t, ": its batch has not been pushed");
  *plan = {};
  plan->iteration = t;
  list_tags(plan);
  if (t % config_.update_period == 0) sets_->refresh();
  const auto leaving = sets_->decide(victims_.due(static_cast<uint32_t>(t)), plan);
  victims_.serve(static_cast<uint32_t>(t));
  if (victims_.is_on()) spill_leaving(leaving, plan);
  sets_->list_moves(plan);
  ++num_planned_;
  rank_starts_.pop_front();
}

void Planner::list_tags(Plan* plan) {
  for (const Tag& tag : tags_) {
    if (tag.next_use == plan->iteration) continue;
    plan->tag_slot.push_back(tag.slot);
    plan->tag_word.push_back(static_cast<int64_t>(tag.word));
  }
  tags_.clear();
}

int64_t Planner::window_bytes() const {
  int64_t bytes = sets_->window_bytes();
  for (const auto& starts : rank_starts_) {
    bytes += sizeof(starts) + starts.capacity() * sizeof(int64_t);
  }
  return bytes;
}

/// Passes the rows that leave to the victim buffer.
void Planner::spill_leaving(std::span<const Leaving> leaving, Plan* plan) {
  plan->leaving_slot.assign(leaving.size(), -1);
  plan->leaving_word.assign(leaving.size(), 0);
  offer_leaving(leaving);
  const VictimBuffer::Outcome outcome = victims_.put(offers_);
  plan->counters.spilled = outcome.num_entered;
  plan->counters.victim_overflow = outcome.num_lost;
  for (size_t i = 0; i < offers_.size(); ++i) {
    const VictimBuffer::Offer& row = offers_[i];
    if (row.slot < 0) continue;
    const uint64_t word =
        row.next_use == kNoNextUse ? kUnknownUse : word_of(row.next_use, row.position);
    plan->leaving_slot[offered_[i]] = row.slot;
    plan->leaving_word[offered_[i]] = static_cast<int64_t>(word);
  }
}

/// Lists the rows that the victim buffer may take. A next use counts once it is pushed: with a
/// trace, lines know more.
void Planner::offer_leaving(std::span<const Leaving> leaving) {
  constexpr size_t kScoresAhead = 24;
  const RanksRef ranks = {scores_, has_leaving_scores_};
  offers_.clear();
  offered_.clear();
  for (size_t i = 0; i < leaving.size(); ++i) {
    if (i + kScoresAhead < leaving.size()) prefetch_score(leaving[i + kScoresAhead].id);
    const Leaving& row = leaving[i];
    const bool is_known = row.next_use != kNoNextUse && row.next_use < num_pushed_;
    if (row.id == kEmptyTag || (!is_known && !victims_.takes_unknown())) continue;
    offered_.push_back(static_cast<uint32_t>(i));
    if (is_known) {
      offers_.push_back({row.id, row.next_use, row.next_position, 0});
    } else {
      offers_.push_back({row.id, kNoNextUse, 0, ranks.of(row)});
    }
  }
}

/// Scores are far apart in memory.
LSM_ONLY_PREFETCHES void Planner::prefetch_score(int64_t id) const {
  if (has_leaving_scores_ || !victims_.takes_unknown()) return;
  if (id >= 0 && id < static_cast<int64_t>(scores_.size())) __builtin_prefetch(&scores_[id]);
}

/// Metadata of a row requested at `position` of batch `next_use`, by the rank that does so first.
uint64_t Planner::word_of(uint32_t next_use, uint32_t position) const {
  const std::vector<int64_t>& starts = rank_starts_[next_use - num_planned()];
  const uint64_t rank =
      starts.empty()
          ? 0
          : std::upper_bound(starts.begin(), starts.end(), int64_t{position}) - starts.begin() - 1;
  return pack_metadata({next_use, rank, position});
}

}  // namespace lsm::cache
