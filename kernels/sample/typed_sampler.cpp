// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/typed_sampler.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/thread_pool.h"
#include "kernels/sample/edge_sampling.h"
#include "kernels/sample/node_list.h"
#include "kernels/sample/typed_edges.h"

namespace lsm {
namespace {

int64_t* words_of(const std::shared_ptr<HostBuffer>& buffer) {
  return reinterpret_cast<int64_t*>(buffer->data());
}

std::shared_ptr<HostBuffer> take_words(BufferPool& buffers, int64_t count) {
  return buffers.take(static_cast<size_t>(count) * sizeof(int64_t));
}

/// Puts the nodes of all types one after another, with ids of one space.
template <class Lists>
void join_nodes(Lists& lists, BufferPool& buffers, TypedSubgraph* result) {
  for (const auto& list : lists) result->num_nodes += list.size();
  result->n_id = take_words(buffers, result->num_nodes);
  const bool is_split = lists.front().is_split();
  if (is_split) result->subgraph = take_words(buffers, result->num_nodes);
  int64_t place = 0, offset = 0;
  for (auto& list : lists) {
    const int64_t num_nodes = list.num_nodes();
    SampledNodes nodes = list.release();
    const int64_t* const n_id = words_of(nodes.n_id);
    std::transform(n_id, n_id + nodes.num_nodes, words_of(result->n_id) + place,
                   [offset](int64_t id) { return id + offset; });
    if (is_split) {
      std::copy_n(words_of(nodes.subgraph), nodes.num_nodes, words_of(result->subgraph) + place);
    }
    result->num_sampled_nodes.push_back(std::move(nodes.num_sampled_nodes));
    place += nodes.num_nodes;
    offset += num_nodes;
  }
}

/// Puts the edges of all types one after another.
template <class Lists>
void join_edges(Lists& lists, BufferPool& buffers, EdgeIds edge_ids, TypedSubgraph* result) {
  std::vector<SampledEdges> parts;
  for (auto& list : lists) parts.push_back(list.release());
  for (const SampledEdges& part : parts) {
    result->num_edges += part.num_edges;
    result->num_bounds += part.num_expanded + 1;
  }
  result->edges = take_words(buffers, 2 * result->num_edges);
  result->indptr = take_words(buffers, result->num_bounds);
  const bool records = edge_ids == EdgeIds::kRecord;
  if (records) result->edge_ids = take_words(buffers, result->num_edges);
  int64_t* sources = words_of(result->edges);
  int64_t* bounds = words_of(result->indptr);
  int64_t place = 0;
  for (SampledEdges& part : parts) {
    const int64_t* const edges = words_of(part.edges);
    std::copy_n(edges, part.num_edges, sources + place);
    std::copy_n(edges + part.num_edges, part.num_edges, sources + result->num_edges + place);
    bounds = std::copy_n(words_of(part.indptr), part.num_expanded + 1, bounds);
    if (records) {
      std::copy_n(words_of(part.edge_ids), part.num_edges, words_of(result->edge_ids) + place);
    }
    place += part.num_edges;
    result->num_sampled_edges.push_back(std::move(part.num_sampled_edges));
  }
}

/// NodeId: int64_t if ids of nodes are those of several subgraphs, else Id.
template <class Id, class NodeId>
class CscTypedSampler final : public TypedSampler {
 public:
  CscTypedSampler(std::vector<int64_t> num_nodes, std::vector<EdgeType<Id>> types, int num_threads,
                  const Sampling& kind, bool disjoint)
      : num_nodes_(std::move(num_nodes)),
        types_(std::move(types)),
        kind_(kind),
        disjoint_(disjoint),
        threads_(num_threads),
        buffers_(std::make_shared<BufferPool>(kMaxIdleOutputBytes)) {
    for (const auto& type : types_) num_hops_ = std::max(num_hops_, type.fanouts.size());
  }

  TypedSubgraph sample(std::span<const TypedSeeds> seeds, const BatchName& batch, EdgeIds edge_ids,
                       std::span<const ExcludedPairs> excluded) override {
    check_excluded(excluded);
    auto workspace = take_workspace();
    std::vector<NodeList<NodeId>> nodes;
    nodes.reserve(num_nodes_.size());
    for (size_t i = 0; i < num_nodes_.size(); ++i) {
      nodes.emplace_back(workspace->tables[i], *buffers_, num_nodes_[i]);
    }
    const std::vector<int64_t> seed_times = add_seeds(seeds, nodes);
    std::vector<Graph<Id>> graphs;  // with the seeds' times
    for (const auto& type : types_) {
      graphs.push_back(type.graph);
      graphs.back().times.of_seeds = seed_times.data();
    }
    std::vector<EdgeSampling<Id, NodeId, NodeHops>> edges;
    edges.reserve(types_.size());
    for (size_t i = 0; i < types_.size(); ++i) {
      const auto& type = types_[i];
      edges.emplace_back(graphs[i],
                         typename EdgeSampling<Id, NodeId, NodeHops>::Ends{nodes[type.source],
                                                                           nodes[type.destination]},
                         workspace->edges[i], *buffers_, threads_, kind_,
                         name_of_type(batch, kind_, i, type.source), edge_ids,
                         excluded.empty() ? ExcludedPairs{} : excluded[i]);
    }
    for (size_t hop = 0; hop < num_hops_; ++hop) {
      for (size_t i = 0; i < types_.size(); ++i) {
        edges[i].expand(static_cast<uint32_t>(hop), types_[i].fanouts[hop]);
      }
      for (auto& list : nodes) list.end_hop();
    }
    TypedSubgraph result;
    join_nodes(nodes, *buffers_, &result);
    join_edges(edges, *buffers_, edge_ids, &result);
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
    return result;
  }

 private:
  struct Workspace {
    std::vector<IdTable<NodeId>> tables;
    std::vector<EdgeWorkspace<NodeHops>> edges;
  };

  void check_excluded(std::span<const ExcludedPairs> excluded) const {
    check_argument(excluded.empty() || excluded.size() == types_.size(),
                   "excluded: expected pairs of each of ", types_.size(), " types of edges, got ",
                   excluded.size());
    for (const ExcludedPairs& pairs : excluded) {
      const size_t count = pairs.destinations.size();
      check_argument(pairs.sources.size() == count, "excluded: expected as many sources as ", count,
                     " destinations, got ", pairs.sources.size());
      for (size_t i = 1; i < count; ++i) {
        const auto before = std::pair(pairs.destinations[i - 1], pairs.sources[i - 1]);
        check_argument(before <= std::pair(pairs.destinations[i], pairs.sources[i]),
                       "excluded: expected pairs in ascending order; pair ", i, " is not");
      }
    }
  }

  /// Returns the times of the subgraphs.
  std::vector<int64_t> add_seeds(std::span<const TypedSeeds> seeds,
                                 std::vector<NodeList<NodeId>>& nodes) const {
    const bool has_times =
        std::ranges::any_of(types_, [](const auto& type) { return type.graph.times.are_given(); });
    std::vector<std::span<const int64_t>> ids(nodes.size());
    std::vector<int64_t> first(nodes.size());
    std::vector<int64_t> times;
    int64_t total = 0;
    for (const TypedSeeds& given : seeds) {
      check_argument(given.type >= 0 && given.type < static_cast<int>(nodes.size()),
                     "seeds: expected a type in [0, ", nodes.size(), "), got ", given.type);
      check_argument(ids[given.type].empty(), "seeds: type ", given.type, " is given twice");
      check_argument(!has_times || given.times.size() == given.ids.size(),
                     "seed times: expected one for each of ", given.ids.size(), " seeds, got ",
                     given.times.size());
      ids[given.type] = given.ids;
      first[given.type] = total;
      total += static_cast<int64_t>(given.ids.size());
      times.insert(times.end(), given.times.begin(), given.times.end());
    }
    for (size_t type = 0; type < nodes.size(); ++type) {
      check_argument(!disjoint_ || num_nodes_[type] <= INT64_MAX / std::max<int64_t>(total, 1),
                     "seeds: too many for subgraphs over ", num_nodes_[type], " nodes");
      nodes[type].add_seeds(ids[type], disjoint_ ? first[type] : -1, total);
    }
    return times;
  }

  std::unique_ptr<Workspace> take_workspace() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      auto workspace = std::make_unique<Workspace>();
      workspace->tables.resize(num_nodes_.size());
      workspace->edges.resize(types_.size());
      return workspace;
    }
    auto workspace = std::move(idle_.back());
    idle_.pop_back();
    return workspace;
  }

  const std::vector<int64_t> num_nodes_;
  const std::vector<EdgeType<Id>> types_;
  const Sampling kind_;
  const bool disjoint_;
  size_t num_hops_ = 0;
  ThreadPool threads_;
  const std::shared_ptr<BufferPool> buffers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

template <class Id>
std::unique_ptr<TypedSampler> make_csc_sampler(std::vector<int64_t> num_nodes,
                                               const std::vector<TypedEdges>& edges,
                                               int num_threads, const Sampling& sampling,
                                               const TypedOptions& options) {
  std::vector<EdgeType<Id>> types = checked_edges<Id>(num_nodes, edges, sampling, options);
  check_argument(!std::holds_alternative<LadiesSampling>(sampling), kOnlyPlainLadies);
  const auto make = [&]<class NodeId>(NodeId) -> std::unique_ptr<TypedSampler> {
    return std::make_unique<CscTypedSampler<Id, NodeId>>(std::move(num_nodes), std::move(types),
                                                         num_threads, sampling, options.disjoint);
  };
  return options.disjoint ? make(int64_t{}) : make(Id{});
}

}  // namespace

std::unique_ptr<TypedSampler> make_typed_sampler(std::vector<int64_t> num_nodes,
                                                 std::vector<TypedEdges> edges, int num_threads,
                                                 const Sampling& sampling,
                                                 const TypedOptions& options) {
  if (!edges.empty() && edges.front().indices.dtype == dtype_of<int32_t>()) {
    return make_csc_sampler<int32_t>(std::move(num_nodes), edges, num_threads, sampling, options);
  }
  return make_csc_sampler<int64_t>(std::move(num_nodes), edges, num_threads, sampling, options);
}

}  // namespace lsm
