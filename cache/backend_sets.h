// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// BatchSets on a Backend: bucket the rows that ask for a line by set, then a warp per set.
#pragma once

#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "cache/batch_set_kernels.h"
#include "cache/batch_sets.h"
#include "cache/policies.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"

namespace lsm::cache {

template <class Policy, class Backend>
class BackendSets final : public BatchSets {
 public:
  /// `config` as checked by check_config().
  BackendSets(std::unique_ptr<Backend> backend, const Policy& policy, const PlannerConfig& config,
              Scores scores)
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
    if (Policy::kNeedsScore) {
      scores_.upload(scores);
      num_scores_ = static_cast<int64_t>(scores.size());
    }
    backend_->synchronize();
  }

  ~BackendSets() override { backend_->drain(); }

  bool uses_window() const override { return Policy::kNeedsWindow; }
  bool refreshes() const override { return Policy::kRefreshes; }

  void link(std::span<const int64_t> ids, std::span<const uint32_t> positions,
            uint32_t batch) override {
    if (positions.empty()) return;
    backend_->enter();
    picked_.clear();
    for (const uint32_t position : positions) picked_.push_back(ids[position]);
    const int64_t* const linked = ids_.upload(picked_);
    backend_->for_each_warp(static_cast<int64_t>(picked_.size()),
                            LinkLine<Policy>{sets(), linked, positions_.upload(positions), batch});
  }

  void refresh() override {
    backend_->enter();
    backend_->for_each(int64_t{num_sets_} * ways_, RefreshLine<Policy>{sets()});
  }

  void decide(std::span<const Access> batch, uint32_t t, Decisions* decisions) override {
    backend_->enter();
    const int64_t count = static_cast<int64_t>(batch.size());
    const BatchRef rows = {batch_.upload(batch),  source_.upload(decisions->source),
                           slot_.grow(count),     key_.grow(count),
                           position_.grow(count), t};
    backend_->for_each_warp(count, LookUp<Policy>{sets(), rows});
    place(rows, count);
    download(batch, rows, decisions);
  }

  int64_t num_bytes() const override {
    const int64_t position_bytes = next_positions_.data() != nullptr ? sizeof(uint32_t) : 0;
    return int64_t{num_sets_} *
               (ways_ * (sizeof(int64_t) + sizeof(typename Policy::Line) + position_bytes) +
                sizeof(typename Policy::State) + Policy::extra_words(ways_) * sizeof(uint64_t)) +
           num_scores_ * sizeof(float);
  }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;

  SetsRef<Policy> sets() const {
    return {policy_,
            tags_.data(),
            lines_.data(),
            states_.data(),
            extra_.data(),
            next_positions_.data(),
            scores_.data(),
            num_scores_,
            num_sets_,
            ways_,
            Policy::extra_words(ways_)};
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
    backend_->for_each(count, CountAsking{keys, count, num_sets_, num_asking_.data()});
  }

  void download(std::span<const Access> batch, const BatchRef& rows, Decisions* decisions) {
    const int64_t count = static_cast<int64_t>(batch.size());
    decisions->candidates.clear();
    decisions->outcomes.clear();
    if (count == 0) return;
    int64_t num_asking = 0;
    backend_->download(&num_asking, num_asking_.data(), sizeof(num_asking));
    backend_->download(decisions->source.data(), rows.source, count * sizeof(Source));
    backend_->download(decisions->slot.data(), rows.slot, count * sizeof(int64_t));
    backend_->synchronize();
    order_.resize(num_asking);
    decisions->outcomes.resize(num_asking);
    backend_->download(order_.data(), sorted_position_.data(), num_asking * sizeof(uint32_t));
    backend_->download(decisions->outcomes.data(), outcome_.data(), num_asking * sizeof(Outcome));
    backend_->synchronize();
    for (const uint32_t position : order_) {
      const Access& row = batch[position];
      decisions->candidates.push_back({row, position});
    }
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
  // Of the batch that is linked or decided.
  Array<int64_t> ids_{*backend_};
  Array<uint32_t> positions_{*backend_};
  Array<Access> batch_{*backend_};
  Array<Source> source_{*backend_};
  Array<int64_t> slot_{*backend_};
  Array<uint32_t> key_{*backend_};
  Array<uint32_t> position_{*backend_};
  Array<uint32_t> sorted_key_{*backend_};
  Array<uint32_t> sorted_position_{*backend_};
  Array<Outcome> outcome_{*backend_};
  Array<int64_t> num_asking_{*backend_};
  std::vector<int64_t> picked_;
  std::vector<uint32_t> order_;
};

template <class Backend>
std::unique_ptr<BatchSets> make_backend_sets(std::unique_ptr<Backend> backend,
                                             const PlannerConfig& config, Scores scores) {
  return with_policy(config, [&](const auto& policy) -> std::unique_ptr<BatchSets> {
    using Policy = std::remove_cvref_t<decltype(policy)>;
    return std::make_unique<BackendSets<Policy, Backend>>(std::move(backend), policy, config,
                                                          scores);
  });
}

}  // namespace lsm::cache
