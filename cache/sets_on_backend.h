// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The sets of GpuSetCache on a Backend: the memory whose types a policy determines, and the
// functors that read and write it. All else is the same for all policies, and is compiled once.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "cache/config.h"
#include "cache/policies.h"
#include "cache/set_cache_functors.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/modulus.h"

namespace lsm::cache {

/// Functors of the sets, for any policy. All queue work, and return before it has ended.
class SetsOnBackend {
 public:
  virtual ~SetsOnBackend() = default;

  virtual bool uses_window() const = 0;
  virtual bool refreshes() const = 0;
  virtual bool needs_scores() const = 0;
  virtual bool ranks_newcomers() const = 0;

  virtual void look_up(const VictimsRef& victims, const BatchRef& rows, int64_t count) = 0;
  virtual void link(const EnteringRef& entering) = 0;
  /// `keys` and `positions`: [count], sorted.
  virtual void place(const ScoresRef& scores, const BatchRef& rows, const uint32_t* keys,
                     const uint32_t* positions, int64_t count, const MovesRef& moves) = 0;
  virtual void refresh() = 0;
  /// Gives lines the scores of their rows.
  virtual void set_scores(const ScoresRef& scores) = 0;

  virtual int64_t num_bytes() const = 0;
};

template <class Policy, class Backend>
class PolicySets final : public SetsOnBackend {
 public:
  PolicySets(Backend& backend, const Policy& policy, uint32_t num_sets, int32_t ways)
      : backend_(&backend), policy_(policy), num_sets_(num_sets), ways_(ways) {
    tags_.assign(num_lines(), 0xFF);  // kEmptyTag
    lines_.assign(num_lines(), 0);
    states_.assign(num_sets, 0);
    extra_.assign(num_sets * Policy::extra_words(ways), 0);
  }

  bool uses_window() const override { return Policy::kNeedsWindow; }
  bool refreshes() const override { return Policy::kRefreshes; }
  bool needs_scores() const override { return Policy::kNeedsScore; }
  bool ranks_newcomers() const override { return RanksNewcomers<Policy>; }

  void look_up(const VictimsRef& victims, const BatchRef& rows, int64_t count) override {
    backend_->for_each_warp(count, LookUp<Policy>{ref(), victims, rows});
  }
  void link(const EnteringRef& entering) override {
    backend_->for_each_warp(entering.count, LinkLine<Policy>{ref(), entering});
  }
  void place(const ScoresRef& scores, const BatchRef& rows, const uint32_t* keys,
             const uint32_t* positions, int64_t count, const MovesRef& moves) override {
    backend_->for_each_warp(count,
                            PlaceRows<Policy>{ref(), scores, rows, keys, positions, count, moves});
  }
  void refresh() override { backend_->for_each(num_lines(), RefreshLine<Policy>{ref()}); }
  void set_scores(const ScoresRef& scores) override {
    if constexpr (Policy::kNeedsScore) {
      backend_->for_each(num_lines(), SetScore<Policy>{ref(), scores});
    }
  }

  int64_t num_bytes() const override {
    return int64_t{num_sets_} * set_bytes<Policy>(ways_, false, false);
  }

 private:
  template <class T>
  using Array = BackendArray<T, Backend>;

  int64_t num_lines() const { return int64_t{num_sets_} * ways_; }
  SetsRef<Policy> ref() const {
    return {policy_,
            tags_.data(),
            lines_.data(),
            states_.data(),
            extra_.data(),
            num_sets_,
            Modulus(num_sets_),
            ways_,
            Policy::extra_words(ways_)};
  }

  Backend* const backend_;
  const Policy policy_;
  const uint32_t num_sets_;
  const int32_t ways_;
  Array<int64_t> tags_{*backend_};
  Array<typename Policy::Line> lines_{*backend_};
  Array<typename Policy::State> states_{*backend_};
  Array<uint64_t> extra_{*backend_};
};

template <class Backend>
std::unique_ptr<SetsOnBackend> make_sets(Backend& backend, const PlannerConfig& config,
                                         uint32_t num_sets) {
  return with_policy(config, [&](const auto& policy) -> std::unique_ptr<SetsOnBackend> {
    using Policy = std::remove_cvref_t<decltype(policy)>;
    return std::make_unique<PolicySets<Policy, Backend>>(backend, policy, num_sets,
                                                         static_cast<int32_t>(config.ways));
  });
}

}  // namespace lsm::cache
