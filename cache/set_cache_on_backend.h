// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// GpuSetCache on a Backend: links the ids that enter the window, and buckets candidates by set, for
// a warp per set.
#pragma once

#include <bit>
#include <memory>
#include <utility>

#include "cache/gpu_set_cache.h"
#include "cache/next_use_chain_on_backend.h"
#include "cache/policies.h"
#include "cache/set_cache_functors.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"

namespace lsm::cache {

template <class Policy, class Backend>
class SetCacheOnBackend final : public GpuSetCache {
 public:
  /// `config` as checked by check_config().
  SetCacheOnBackend(std::unique_ptr<Backend> backend, const Policy& policy,
                    const PlannerConfig& config, Scores scores)
      : backend_(std::move(backend)), policy_(policy), ways_(static_cast<int32_t>(config.ways)) {
    backend_->enter();
    const int64_t num_sets = config.num_lines / config.ways;
    check_argument(num_sets < UINT32_MAX,
                   "cache.num_lines: a planner on a GPU has fewer than 2^32 "
                   "sets, got ",
                   num_sets);
    num_sets_ = static_cast<uint32_t>(num_sets);
    tags_.assign(config.num_lines, 0xFF);  // kEmptyTag
    lines_.assign(config.num_lines, 0);
    states_.assign(num_sets, 0);
    extra_.assign(num_sets * Policy::extra_words(ways_), 0);
    if (keeps_positions(config)) next_positions_.assign(config.num_lines, 0);
    num_asking_.assign(1, 0);
    upload_scores(scores);
    backend_->synchronize();
  }

  ~SetCacheOnBackend() override { backend_->drain(); }

  bool refreshes() const override { return Policy::kRefreshes; }
  bool needs_scores() const override { return Policy::kNeedsScore; }

  void push(std::span<const int64_t> ids) override {
    backend_->enter();
    const EnteringRef entering = chain_.push(ids);
    if (!Policy::kNeedsWindow && next_positions_.data() == nullptr) return;
    backend_->for_each_warp(entering.count, LinkLine<Policy>{sets(), entering});
  }

  void refresh() override {
    backend_->enter();
    backend_->for_each(int64_t{num_sets_} * ways_, RefreshLine<Policy>{sets()});
  }

  void decide(uint32_t t, Decisions* decisions) override {
    backend_->enter();
    const int64_t count = static_cast<int64_t>(decisions->source.size());
    const BatchRef rows = {chain_.ref(),          source_.upload(decisions->source),
                           slot_.grow(count),     key_.grow(count),
                           position_.grow(count), t};
    backend_->for_each_warp(count, LookUp<Policy>{sets(), rows});
    place(rows, count);
    download(rows, count, decisions);
    chain_.retire();
  }

  void set_scores(Scores scores) override {
    if constexpr (Policy::kNeedsScore) {
      backend_->enter();
      backend_->synchronize();  // queued work may still read the present scores
      upload_scores(scores);
      backend_->for_each(int64_t{num_sets_} * ways_, SetScore<Policy>{sets()});
      backend_->synchronize();
    }
  }

  int64_t num_bytes() const override {
    const int64_t position_bytes = next_positions_.data() != nullptr ? sizeof(uint32_t) : 0;
    return int64_t{num_sets_} *
               (ways_ * (sizeof(int64_t) + sizeof(typename Policy::Line) + position_bytes) +
                sizeof(typename Policy::State) + Policy::extra_words(ways_) * sizeof(uint64_t)) +
           num_scores_ * sizeof(float);
  }
  int64_t window_bytes() const override { return chain_.num_bytes(); }
  int64_t window_entries() const override { return chain_.num_entries(); }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;

  void upload_scores(Scores scores) {
    if (!Policy::kNeedsScore) return;
    scores_.upload(scores);
    num_scores_ = static_cast<int64_t>(scores.size());
  }

  SetsRef<Policy> sets() const {
    return {policy_,       tags_.data(),           lines_.data(),  states_.data(),
            extra_.data(), next_positions_.data(), scores_.data(), num_scores_,
            num_sets_,     Modulus(num_sets_),     ways_,          Policy::extra_words(ways_)};
  }

  void place(const BatchRef& rows, int64_t count) {
    if (count == 0) return;
    uint32_t* const keys = sorted_key_.grow(count);
    uint32_t* const positions = sorted_position_.grow(count);
    const int bits = std::bit_width(num_sets_);  // num_sets_ itself is a key
    backend_->sort_pairs(rows.key, keys, rows.position, positions, count, bits);
    backend_->for_each_warp(
        count, PlaceRows<Policy>{sets(), rows, keys, positions, count, outcome_.grow(count)});
    backend_->fill(num_asking_.data(), 0, sizeof(int64_t));
    backend_->for_each(count, ListAsking{rows, keys, positions, count, num_sets_,
                                         asking_.grow(count), num_asking_.data()});
  }

  void download(const BatchRef& rows, int64_t count, Decisions* decisions) {
    decisions->candidates.clear();
    decisions->outcomes.clear();
    if (count == 0) return;
    int64_t num_asking = 0;
    backend_->download(&num_asking, num_asking_.data(), sizeof(num_asking));
    backend_->download(decisions->source.data(), rows.source, count * sizeof(Source));
    backend_->download(decisions->slot.data(), rows.slot, count * sizeof(int64_t));
    backend_->synchronize();
    decisions->candidates.resize(num_asking);
    decisions->outcomes.resize(num_asking);
    backend_->download(decisions->candidates.data(), asking_.data(),
                       num_asking * sizeof(Candidate));
    backend_->download(decisions->outcomes.data(), outcome_.data(), num_asking * sizeof(Outcome));
    backend_->synchronize();
  }

  const std::unique_ptr<Backend> backend_;  // outlives the arrays
  const Policy policy_;
  const int32_t ways_;
  uint32_t num_sets_ = 0;
  int64_t num_scores_ = 0;
  Array<int64_t> tags_{*backend_};
  Array<typename Policy::Line> lines_{*backend_};
  Array<typename Policy::State> states_{*backend_};
  Array<uint64_t> extra_{*backend_};
  Array<uint32_t> next_positions_{*backend_};
  Array<float> scores_{*backend_};
  NextUseChainOnBackend<Backend> chain_{*backend_};
  // State of the batch in decide().
  Array<Source> source_{*backend_};
  Array<int64_t> slot_{*backend_};
  Array<uint32_t> key_{*backend_};
  Array<uint32_t> position_{*backend_};
  Array<uint32_t> sorted_key_{*backend_};
  Array<uint32_t> sorted_position_{*backend_};
  Array<Candidate> asking_{*backend_};
  Array<Outcome> outcome_{*backend_};
  Array<int64_t> num_asking_{*backend_};
};

template <class Backend>
std::unique_ptr<GpuSetCache> make_set_cache_on_backend(std::unique_ptr<Backend> backend,
                                                       const PlannerConfig& config, Scores scores) {
  return with_policy(config, [&](const auto& policy) -> std::unique_ptr<GpuSetCache> {
    using Policy = std::remove_cvref_t<decltype(policy)>;
    return std::make_unique<SetCacheOnBackend<Policy, Backend>>(std::move(backend), policy, config,
                                                                scores);
  });
}

}  // namespace lsm::cache
