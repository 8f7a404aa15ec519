// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/pagerank/reverse_pagerank.h"

#include <algorithm>
#include <atomic>

#include "kernels/core/check.h"
#include "kernels/core/host_array.h"
#include "kernels/gather/gather.h"
#include "kernels/sample/sampler.h"

namespace lsm {
namespace {

// The whole mass. No node can hold more, so sums in 64 bits do not overflow.
constexpr uint64_t kOne = uint64_t{1} << 62;
constexpr int64_t kNodesPerTask = 1 << 14;
constexpr int64_t kEdgesAhead = 24;

template <class Id>
class ReversePagerank {
 public:
  ReversePagerank(std::span<const int64_t> indptr, std::span<const Id> indices,
                  std::span<const int64_t> train_ids, ThreadPool& pool,
                  const std::atomic<bool>* stop)
      : indptr_(indptr),
        indices_(indices),
        train_ids_(train_ids),
        num_nodes_(static_cast<int64_t>(indptr.size()) - 1),
        pool_(pool),
        stop_(stop) {
    check_indices();
    mass_.resize_discarding(num_nodes_);
    next_.resize_discarding(num_nodes_);
  }

  bool run(const PagerankOptions& options, std::span<float> scores) {
    clear(mass_);
    teleport(kOne, mass_);
    // In units of 2^-32, so that a share of a mass is integer arithmetic too.
    const auto damping = static_cast<uint64_t>(options.damping * 0x1p32);
    for (int i = 0; i < options.iterations; ++i) {
      clear(next_);
      teleport(kOne - push(damping), next_);
      std::swap(mass_, next_);
      if (is_stopped()) return false;
    }
    pool_.parallel_for(num_nodes_, kNodesPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        scores[v] = static_cast<float>(static_cast<double>(mass_[v]) / kOne);
      }
    });
    return true;
  }

 private:
  bool is_stopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }

  void check_indices() {
    const int64_t edges = static_cast<int64_t>(indices_.size());
    pool_.parallel_for(edges, kNodesPerTask, [&](int64_t begin, int64_t end) {
      bool in_range = true;
      for (int64_t e = begin; e < end; ++e) {
        if (e % kNodesPerTask == 0 && is_stopped()) return;
        in_range &= static_cast<uint64_t>(int64_t{indices_[e]}) < static_cast<uint64_t>(num_nodes_);
      }
      check_argument(in_range, "indices: expected ids in [0, ", num_nodes_,
                     "); the topology is damaged: check it with `lsm data verify`");
    });
  }

  void clear(const HostArray<uint64_t>& mass) {
    pool_.parallel_for(num_nodes_, kNodesPerTask, [&](int64_t begin, int64_t end) {
      std::fill(mass.data() + begin, mass.data() + end, uint64_t{0});
    });
  }

  /// Deals `amount` out to the training nodes; the first ones get the units that do not divide.
  void teleport(uint64_t amount, const HostArray<uint64_t>& mass) {
    const uint64_t share = amount / train_ids_.size();
    const uint64_t left = amount % train_ids_.size();
    for (size_t i = 0; i < train_ids_.size(); ++i) mass[train_ids_[i]] += share + (i < left);
  }

  /// Adds to `next` the mass that nodes pass to their in-neighbours. Returns its sum.
  uint64_t push(uint64_t damping) {
    std::atomic<uint64_t> pushed{0};
    const bool alone = pool_.num_threads() == 1;
    pool_.parallel_for(num_nodes_, kNodesPerTask, [&](int64_t begin, int64_t end) {
      pushed +=
          alone ? push_range<false>(damping, begin, end) : push_range<true>(damping, begin, end);
    });
    return pushed;
  }

  template <bool kShared>
  uint64_t push_range(uint64_t damping, int64_t begin, int64_t end) {
    const int64_t last_edge = static_cast<int64_t>(indices_.size());
    uint64_t pushed = 0;
    for (int64_t v = begin; v < end; ++v) {
      if (v % kNodesPerTask == 0 && is_stopped()) break;
      const uint64_t degree = static_cast<uint64_t>(indptr_[v + 1] - indptr_[v]);
      if (degree == 0 || mass_[v] == 0) continue;
      const uint64_t share = scale(mass_[v], damping) / degree;
      pushed += share * degree;
      for (int64_t e = indptr_[v]; e < indptr_[v + 1]; ++e) {
        if (e + kEdgesAhead < last_edge) __builtin_prefetch(&next_[indices_[e + kEdgesAhead]], 1);
        add<kShared>(next_[indices_[e]], share);
      }
    }
    return pushed;
  }

  static uint64_t scale(uint64_t mass, uint64_t damping) {
    // mass * damping / 2^32, in two halves because the product needs more than 64 bits.
    return (mass >> 32) * damping + ((mass & UINT32_MAX) * damping >> 32);
  }

  template <bool kShared>
  static void add(uint64_t& cell, uint64_t amount) {
    if constexpr (kShared) {
      // Relaxed: only the sum matters, and the end of the loop orders it before any read.
      std::atomic_ref<uint64_t>(cell).fetch_add(amount, std::memory_order_relaxed);
    } else {
      cell += amount;
    }
  }

  const std::span<const int64_t> indptr_;
  const std::span<const Id> indices_;
  const std::span<const int64_t> train_ids_;
  const int64_t num_nodes_;
  ThreadPool& pool_;
  const std::atomic<bool>* const stop_;
  HostArray<uint64_t> mass_;
  HostArray<uint64_t> next_;
};

}  // namespace

bool reverse_pagerank(const TensorView& indptr, const TensorView& indices,
                      std::span<const int64_t> train_ids, const PagerankOptions& options,
                      std::span<float> scores, ThreadPool& pool) {
  const auto offsets = indptr.as<const int64_t>("indptr");
  const int64_t num_nodes = check_indptr(offsets, indices.num_elements());
  check_argument(options.iterations >= 0, "iterations: expected at least 0, got ",
                 options.iterations);
  check_argument(options.damping >= 0 && options.damping <= 1,
                 "damping: expected a number in [0, 1], got ", options.damping);
  check_argument(!train_ids.empty(), "train_ids: expected at least one node");
  check_ids("train_ids", train_ids, num_nodes);
  check_argument(static_cast<int64_t>(scores.size()) == num_nodes, "scores: expected ", num_nodes,
                 " elements, got ", scores.size());
  if (indices.dtype == dtype_of<int32_t>()) {
    return ReversePagerank<int32_t>(offsets, indices.as<const int32_t>("indices"), train_ids, pool,
                                    options.stop)
        .run(options, scores);
  }
  return ReversePagerank<int64_t>(offsets, indices.as<const int64_t>("indices"), train_ids, pool,
                                  options.stop)
      .run(options, scores);
}

void in_degree(std::span<const int64_t> indptr, std::span<float> scores, ThreadPool& pool) {
  check_argument(indptr.size() == scores.size() + 1, "scores: expected ", indptr.size() - 1,
                 " elements, got ", scores.size());
  pool.parallel_for(static_cast<int64_t>(scores.size()), kNodesPerTask,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t v = begin; v < end; ++v) {
                        scores[v] = static_cast<float>(indptr[v + 1] - indptr[v]);
                      }
                    });
}

}  // namespace lsm
