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

/// Ids that one task looks up at a time.
constexpr int64_t kLookUpGrain = 4096;

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
                 std::shared_ptr<ThreadPool> pool, std::unique_ptr<GpuSetCache> batch_sets)
    : config_(checked(config)),
      has_trace_(policy_kind(config.policy) == PolicyKind::kBelady),
      pool_(std::move(pool)),
      static_ids_(index_ids("static_ids", input.static_ids)),
      constant_ids_(index_ids("constant_ids", input.constant_ids)),
      batch_sets_(std::move(batch_sets)),
      cache_(batch_sets_ ? nullptr : make_set_cache(config_, input.scores)),
      victims_(victim_mode(config.victim_mode), config.victim_rows, config_.window),
      scores_(input.scores),
      num_sets_(config.num_lines / config.ways),
      has_outcome_scores_(batch_sets_ ? batch_sets_->needs_scores() : cache_->needs_scores()),
      offsets_(num_sets_ + 1) {
  check_scores(input.scores);
  collapse_into_huge_pages(std::as_bytes(scores_));
  check_argument(has_trace_ || input.trace.empty(), "trace: only the policy 'belady' takes one");
  for (const std::span<const int64_t> ids : input.trace) {
    check_ids(ids);
    enter(ids);
  }
}

void Planner::check_ids(std::span<const int64_t> ids) const {
  check_argument(ids.size() < kMaxIterations, "ids: expected fewer than 2^32 ids in a batch");
  const int64_t end = config_.num_nodes < 0 ? INT64_MAX : config_.num_nodes;
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [end](int64_t id) { return id < 0 || id >= end; });
  if (bad == ids.end()) return;
  const std::string expected = config_.num_nodes < 0 ? ">= 0" : concat("in [0, ", end, ")");
  throw ArgumentError(
      concat("ids: expected ids ", expected, ", got ", *bad, " at position ", bad - ids.begin()));
}

void Planner::check_against_trace(std::span<const int64_t> ids) const {
  const int64_t end =
      batch_sets_ ? num_planned_ + static_cast<int64_t>(batches_.size()) : chain_.end_batch();
  check_argument(num_pushed_ < end, "ids: the trace given to 'belady' has only ", end, " batches");
  check_argument(is_batch(ids, num_pushed_), "ids: batch ", num_pushed_,
                 " differs from that of the trace");
}

/// Whether `ids` are those of batch `b`, which is in the window.
bool Planner::is_batch(std::span<const int64_t> ids, int64_t b) const {
  if (batch_sets_) return std::ranges::equal(ids, batches_[b - num_planned_]);
  return std::ranges::equal(ids, chain_.batch(b),
                            [](int64_t id, const Occurrence& row) { return id == row.id(); });
}

void Planner::push(std::span<const int64_t> ids, std::span<const int64_t> rank_starts) {
  check_argument(num_pushed_ - num_planned() < config_.window, "the window is full: its ",
                 config_.window, " batches wait for their plans; plan an iteration first");
  check_argument(num_pushed_ < kMaxIterations, "a planner makes at most 2^32 plans");
  check_rank_starts(rank_starts, static_cast<int64_t>(ids.size()));
  std::span<const uint32_t> unlinked;
  if (has_trace_) {
    check_against_trace(ids);
  } else {
    check_ids(ids);
    unlinked = enter(ids);
  }
  rank_starts_.emplace_back(rank_starts.begin(), rank_starts.end());
  ++num_pushed_;
  if (victims_.takes_unknown()) tag_victims(ids, unlinked);
}

/// Links the ids of the next batch, and tells the lines that hold them. Returns the positions of
/// those that the window does not hold yet, if there are no batch_sets_.
std::span<const uint32_t> Planner::enter(std::span<const int64_t> ids) {
  if (batch_sets_) {
    batch_sets_->push(ids);
    batches_.emplace_back(ids.begin(), ids.end());
    return {};
  }
  const std::span<const uint32_t> unlinked = chain_.push(ids);
  if (has_trace_) return {};  // all of it enters while lines are empty
  if (!cache_->uses_window() && !victims_.is_on()) return unlinked;
  cache_->link(ids, unlinked, static_cast<uint32_t>(num_pushed_));
  return unlinked;
}

/// Tells the rows of the victim buffer that the batch pushed last asks for.
void Planner::tag_victims(std::span<const int64_t> ids, std::span<const uint32_t> unlinked) {
  const uint32_t t = static_cast<uint32_t>(num_pushed_ - 1);
  const auto tagged = [&](uint32_t position, int64_t slot) {
    tags_.push_back({t, slot, word_of(t, position)});
  };
  // A row of an id that the window holds has a next use.
  if (batch_sets_ || has_trace_) {
    victims_.enter_window(t, ids, tagged);
  } else {
    victims_.enter_window(t, ids, tagged, unlinked);
  }
}

void Planner::set_scores(Scores scores) {
  check_argument(!scores.empty(), "scores: expected one for each node, got none");
  check_scores(scores);
  collapse_into_huge_pages(std::as_bytes(scores));
  batch_sets_ ? batch_sets_->set_scores(scores) : cache_->set_scores(scores);
  scores_ = scores;
  victims_.rank_again([this](int64_t id) { return score_of(id); });
}

void Planner::plan(Plan* plan) {
  const int64_t t = num_planned();
  check_argument(t < num_pushed_, "plan of iteration ", t, ": its batch has not been pushed");
  *plan = {};
  plan->iteration = t;
  const size_t count = batch_sets_ ? batches_.front().size() : chain_.batch(t).size();
  plan->source.resize(count);
  plan->slot.resize(count);
  for (const Tag& tag : tags_) {
    if (tag.next_use == t) continue;
    plan->tag_slot.push_back(tag.slot);
    plan->tag_word.push_back(static_cast<int64_t>(tag.word));
  }
  tags_.clear();
  refresh_lines(t);
  victims_.open(static_cast<uint32_t>(t));
  batch_sets_ ? decide_on_batch(plan) : decide_on_sets(plan);
  plan->count_sources();
  record_moves(plan);
  ++num_planned_;
  rank_starts_.pop_front();
}

int64_t Planner::window_bytes() const {
  int64_t bytes = batch_sets_ ? batch_sets_->window_bytes() : chain_.num_bytes();
  for (const auto& ids : batches_) bytes += sizeof(ids) + ids.capacity() * sizeof(int64_t);
  for (const auto& starts : rank_starts_) {
    bytes += sizeof(starts) + starts.capacity() * sizeof(int64_t);
  }
  return bytes;
}

/// Finds the requests, and lines for those that ask for one, with the threads of the pool.
void Planner::decide_on_sets(Plan* plan) {
  accesses_.resize(plan->source.size());
  plan->ids.resize(plan->source.size());
  look_up(plan);
  victims_.serve();
  bucket_candidates(plan);
  place_candidates(static_cast<uint32_t>(plan->iteration));
  chain_.retire();
}

/// The same, all at once, by batch_sets_.
void Planner::decide_on_batch(Plan* plan) {
  plan->ids = std::move(batches_.front());
  batches_.pop_front();
  find_buffered(plan);
  Decisions decisions;
  decisions.buffered = buffered_;
  decisions.source = plan->source;
  decisions.leaving = std::move(leaving_);
  batch_sets_->decide(static_cast<uint32_t>(plan->iteration), &decisions);
  leaving_ = std::move(decisions.leaving);
  plan->on_gpu = std::move(decisions.moves);
  plan->slot.clear();
  plan->counters.evictions = decisions.num_evictions;
  plan->counters.bypasses = decisions.num_bypasses;
  victims_.serve();
}

/// Writes the requests to buffered_ that tiers beside the cache serve.
void Planner::find_buffered(Plan* plan) {
  buffered_.clear();
  if (static_ids_.size() == 0 && constant_ids_.size() == 0 && !victims_.is_on()) return;
  const int64_t count = static_cast<int64_t>(plan->ids.size());
  pool_->parallel_for(count, kLookUpGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      plan->source[i] = find_in_buffers(plan->ids[i], &plan->slot[i]);
    }
  });
  for (int64_t i = 0; i < count; ++i) {
    if (plan->source[i] == RowSource::kStorage) continue;
    const bool is_victim = plan->source[i] == RowSource::kVictim;
    const int64_t slot = is_victim ? victims_.find(plan->ids[i]) : plan->slot[i];
    buffered_.push_back({slot, static_cast<uint32_t>(i), plan->source[i]});
    if (!is_victim) continue;
    plan->victim_position.push_back(i);
    plan->victim_slot.push_back(slot);
  }
}

void Planner::refresh_lines(int64_t t) {
  if (t % config_.update_period != 0) return;
  if (batch_sets_) {
    if (batch_sets_->refreshes()) batch_sets_->refresh();
    return;
  }
  if (!cache_->refreshes()) return;
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 16) / config_.ways);
  pool_->parallel_for(num_sets_, grain,
                      [&](int64_t begin, int64_t end) { cache_->refresh(begin, end); });
}

/// Finds every request; leaves -1 - its set in the slots of those that ask for a line.
void Planner::look_up(Plan* plan) {
  const int64_t t = plan->iteration;
  const int64_t count = static_cast<int64_t>(accesses_.size());
  pool_->parallel_for(count, kLookUpGrain, [&](int64_t begin, int64_t end) {
    chain_.read(t, begin, end, accesses_.data());
    cache_->look_up({&accesses_[begin], static_cast<size_t>(end - begin)}, static_cast<uint32_t>(t),
                    plan->slot.data() + begin);
    for (int64_t i = begin; i < end; ++i) {
      plan->ids[i] = accesses_[i].id;
      plan->source[i] =
          plan->slot[i] >= 0 ? RowSource::kCache : find_in_buffers(plan->ids[i], &plan->slot[i]);
    }
  });
}

/// The tier of a row that is not in the cache. No row is in two tiers, so their order is free: the
/// rows of the static and the constant tier never ask for a line.
RowSource Planner::find_in_buffers(int64_t id, int64_t* slot) const {
  int64_t found;
  if ((found = static_ids_.find(id)) >= 0) {
    *slot = found;
    return RowSource::kStatic;
  }
  if (victims_.find(id) >= 0) return RowSource::kVictim;
  if ((found = constant_ids_.find(id)) >= 0) {
    *slot = found;
    return RowSource::kConstant;
  }
  return RowSource::kStorage;
}

/// Sorts the requests that ask for a line by set.
void Planner::bucket_candidates(Plan* plan) {
  const int64_t count = static_cast<int64_t>(plan->source.size());
  const auto asks = [&](int64_t i) {
    return plan->source[i] == RowSource::kVictim || plan->source[i] == RowSource::kStorage;
  };
  std::fill(offsets_.begin(), offsets_.end(), 0);
  for (int64_t i = 0; i < count; ++i) {
    if (asks(i)) ++offsets_[-1 - plan->slot[i]];
  }
  uint32_t num_candidates = 0;
  for (uint32_t& offset : offsets_) offset = num_candidates += offset;
  candidates_.resize(num_candidates);
  outcomes_.resize(num_candidates);
  // From the last on, so that the ends of the sets become their beginnings.
  for (int64_t i = count - 1; i >= 0; --i) {
    if (!asks(i)) continue;
    candidates_[--offsets_[-1 - plan->slot[i]]] = {accesses_[i], static_cast<uint32_t>(i)};
    plan->slot[i] = plan->source[i] == RowSource::kVictim ? victims_.find(plan->ids[i]) : -1;
  }
}

void Planner::place_candidates(uint32_t t) {
  const Candidates candidates = {t, candidates_, offsets_, outcomes_};
  const int64_t grain = std::max<int64_t>(1, num_sets_ / (8 * pool_->num_threads()));
  pool_->parallel_for(num_sets_, grain,
                      [&](int64_t begin, int64_t end) { cache_->place(candidates, begin, end); });
}

/// Writes the moves that the outcomes ask for, and passes rows to the victim buffer, in order. A
/// GPU keeps its moves.
void Planner::record_moves(Plan* plan) {
  if (batch_sets_)
    return spill_leaving(plan, leaving_.size(), [&](size_t i) { return leaving_[i]; });
  const uint32_t now = static_cast<uint32_t>(plan->iteration) + 1;
  spill_leaving(plan, outcomes_.size(), [&](size_t i) -> Leaving {
    constexpr size_t kScoresAhead = 24;
    if (i + kScoresAhead < outcomes_.size()) prefetch_score(i + kScoresAhead);
    const Outcome& outcome = outcomes_[i];
    const Access& row = candidates_[i].access;
    if (outcome.line < 0) return {row.id, row.next_use, row.next_position, now, outcome.score};
    return {outcome.evicted_id, outcome.evicted_next_use, outcome.evicted_next_position,
            outcome.evicted_touched, outcome.score};
  });
  plan->insert_position.reserve(outcomes_.size());
  plan->insert_line.reserve(outcomes_.size());
  plan->evict_line.reserve(outcomes_.size());
  plan->evict_slot.reserve(outcomes_.size());
  plan->evict_word.reserve(outcomes_.size());
  plan->add_moves(outcomes_.size(), [&](size_t i) {
    const Outcome& outcome = outcomes_[i];
    return Move{candidates_[i].position, outcome.line, outcome.evicted_id != kEmptyTag};
  });
  plan->counters.evictions = static_cast<int64_t>(plan->evict_line.size());
  plan->counters.bypasses = static_cast<int64_t>(outcomes_.size() - plan->insert_line.size());
}

/// Passes the rows that leave to the victim buffer, if there is one, in the order of the moves. A
/// row that entered it and then gave way to another of the same plan does not: two copies into one
/// slot would race.
template <class LeavingOf>
void Planner::spill_leaving(Plan* plan, size_t count, const LeavingOf& leaving_of) {
  if (!victims_.is_on()) return;
  has_displaced_ = false;
  plan->leaving_slot.assign(count, -1);
  plan->leaving_word.assign(count, 0);
  for (size_t i = 0; i < count; ++i) {
    const Leaving row = leaving_of(i);
    if (row.id == kEmptyTag) continue;
    const Spilled spilled = spill(row, plan);
    if (spilled.slot < 0) continue;
    victims_.note_move(spilled.slot, static_cast<uint32_t>(i));
    plan->leaving_slot[i] = spilled.slot;
    plan->leaving_word[i] = spilled.word;
  }
  for (size_t i = 0; has_displaced_ && i < count; ++i) {
    int64_t& slot = plan->leaving_slot[i];
    if (slot < 0 || victims_.is_last_move(slot, static_cast<uint32_t>(i))) continue;
    slot = -1;
    plan->leaving_word[i] = 0;
  }
}

/// Puts a row that leaves the device into the victim buffer, if it takes it. A next use counts once
/// it is pushed: with a trace, lines know more.
Planner::Spilled Planner::spill(const Leaving& row, Plan* plan) {
  const bool is_known = row.next_use != kNoNextUse && row.next_use < num_pushed_;
  if (!is_known && !victims_.takes_unknown()) return {};
  const auto rank = [&] {
    if (scores_.empty()) return row.touched;
    return has_outcome_scores_ ? row.score : score_of(row.id);
  };
  const VictimBuffer::Entry entry =
      is_known ? victims_.put(row.id, row.next_use) : victims_.put_unknown(row.id, rank());
  plan->counters.victim_overflow += entry.is_lost;
  if (entry.slot < 0) return {};
  ++plan->counters.spilled;
  has_displaced_ |= entry.is_taken;
  const uint64_t word = is_known ? word_of(row.next_use, row.next_position) : kUnknownUse;
  return {entry.slot, static_cast<int64_t>(word)};
}

uint32_t Planner::score_of(int64_t id) const {
  return id < static_cast<int64_t>(scores_.size()) ? score_bits(scores_[id]) : 0;
}

/// For the i-th outcome. Scores are far apart in memory.
LSM_ONLY_PREFETCHES void Planner::prefetch_score(size_t i) const {
  if (has_outcome_scores_ || !victims_.takes_unknown()) return;
  const int64_t id = outcomes_[i].line < 0 ? candidates_[i].access.id : outcomes_[i].evicted_id;
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
