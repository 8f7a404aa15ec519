// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/sampler.h"

#include <mutex>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/mapped_file.h"
#include "kernels/core/thread_pool.h"
#include "kernels/sample/batch_sampling.h"

namespace lsm {
namespace {

constexpr int64_t kMaxFanout = int64_t{1} << 29;
constexpr uint32_t kMaxDependency = uint32_t{1} << 30;  // so that ages and phases add up

template <class Id, class Hops>
class CscSampler final : public NeighborSampler {
 public:
  CscSampler(Graph<Id> graph, std::vector<int64_t> fanouts, int num_threads, const Sampling& kind)
      : graph_(graph),
        fanouts_(std::move(fanouts)),
        kind_(kind),
        threads_(num_threads),
        buffers_(std::make_shared<BufferPool>(kMaxIdleOutputBytes)) {}

  SampledSubgraph sample(std::span<const int64_t> seeds, const BatchName& batch,
                         EdgeIds edge_ids) override {
    auto workspace = take_workspace();
    auto subgraph =
        BatchSampling<Id, Hops>(graph_, *workspace, *buffers_, threads_, kind_, batch, edge_ids)
            .run(seeds, fanouts_);
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
    return subgraph;
  }

 private:
  std::unique_ptr<Workspace<Id, Hops>> take_workspace() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Workspace<Id, Hops>>();
    auto workspace = std::move(idle_.back());
    idle_.pop_back();
    return workspace;
  }

  const Graph<Id> graph_;
  const std::vector<int64_t> fanouts_;
  const Sampling kind_;
  ThreadPool threads_;
  const std::shared_ptr<BufferPool> buffers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace<Id, Hops>>> idle_;
};

template <class Id>
std::unique_ptr<NeighborSampler> make_csc_sampler(const Graph<Id>& graph,
                                                  std::vector<int64_t> fanouts, int num_threads,
                                                  const Sampling& sampling) {
  const auto make = [&]<class Hops>() -> std::unique_ptr<NeighborSampler> {
    return std::make_unique<CscSampler<Id, Hops>>(graph, std::move(fanouts), num_threads, sampling);
  };
  if (std::holds_alternative<LadiesSampling>(sampling)) {
    return make.template operator()<LayerHops<Id>>();
  }
  return make.template operator()<NodeHops>();
}

void check_kind(const NeighborSampling&, std::span<const int64_t>) {}

void check_kind(const LaborSampling& labor, std::span<const int64_t>) {
  check_argument(labor.batch_dependency >= 1 && labor.batch_dependency <= kMaxDependency,
                 "batch_dependency: expected 1 to 2^30, got ", labor.batch_dependency);
}

void check_kind(const LadiesSampling&, std::span<const int64_t> sizes) {
  for (const int64_t size : sizes) {
    check_argument(size >= 1, "num_neighbors: expected at least 1 node per hop for ladies, got ",
                   size);
  }
}

}  // namespace

void check_fanouts(std::span<const int64_t> fanouts) {
  for (const int64_t fanout : fanouts) {
    check_argument(fanout >= -1 && fanout <= kMaxFanout,
                   "num_neighbors: expected -1 (all) or 0 to 2^29 per hop, got ", fanout);
  }
}

void check_sampling(const Sampling& sampling, std::span<const int64_t> fanouts) {
  std::visit([&](const auto& kind) { check_kind(kind, fanouts); }, sampling);
}

int64_t check_indptr(std::span<const int64_t> indptr, int64_t num_edges) {
  check_argument(!indptr.empty(), "indptr: expected num_nodes + 1 elements, got none");
  check_argument(indptr.front() == 0 && indptr.back() == num_edges,
                 "indptr: expected it to go from 0 to the ", num_edges,
                 " elements of indices, got ", indptr.front(), " to ", indptr.back());
  const int64_t num_nodes = static_cast<int64_t>(indptr.size()) - 1;
  bool valid = true;  // no early exit: this way the loop is vectorised
  for (int64_t v = 0; v < num_nodes; ++v) {
    valid &= static_cast<uint64_t>(indptr[v + 1] - indptr[v]) < UINT32_MAX;
  }
  check_mapped(indptr.data());
  if (valid) return num_nodes;
  int64_t v = 0;
  while (static_cast<uint64_t>(indptr[v + 1] - indptr[v]) < UINT32_MAX) ++v;
  throw ArgumentError(concat("indptr: expected degrees in [0, 2^32 - 1), node ", v, " has ",
                             indptr[v + 1] - indptr[v],
                             "; check the topology with `lsm data verify`"));
}

std::unique_ptr<NeighborSampler> make_neighbor_sampler(const TensorView& indptr,
                                                       const TensorView& indices,
                                                       std::vector<int64_t> fanouts,
                                                       int num_threads, const Sampling& sampling) {
  check_fanouts(fanouts);
  check_sampling(sampling, fanouts);
  const auto offsets = indptr.as<const int64_t>("indptr");
  const int64_t num_nodes = check_indptr(offsets, indices.num_elements());
  if (indices.dtype == dtype_of<int32_t>()) {
    check_argument(num_nodes <= INT32_MAX, "indices: expected int64 for ", num_nodes, " nodes");
    const Graph<int32_t> graph{offsets.data(), indices.as<const int32_t>("indices").data(),
                               num_nodes, num_nodes};
    return make_csc_sampler(graph, std::move(fanouts), num_threads, sampling);
  }
  const Graph<int64_t> graph{offsets.data(), indices.as<const int64_t>("indices").data(), num_nodes,
                             num_nodes};
  return make_csc_sampler(graph, std::move(fanouts), num_threads, sampling);
}

}  // namespace lsm
