// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/sampler.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/philox.h"
#include "kernels/core/thread_pool.h"
#include "kernels/sample/draw.h"
#include "kernels/sample/host_array.h"
#include "kernels/sample/unique.h"

namespace lsm {
namespace {

constexpr size_t kMaxIdleOutputBytes = size_t{256} << 20;
constexpr int64_t kMaxFanout = int64_t{1} << 29;
// indptr entries are fetched this many nodes before they are read.
constexpr int64_t kNodesAhead = 32;
// Nodes drawn together: enough in-edges to hide the latency of fetching them, few enough that the
// fetched lines are still in the first-level cache when they are read.
constexpr int64_t kBlockEdges = 384;
constexpr int64_t kNodesPerTask = 2048;

/// A pooled int64 array that keeps its contents when it grows.
class OutputArray {
 public:
  explicit OutputArray(BufferPool& pool) : pool_(pool) {}

  void grow(int64_t size, int64_t used) {
    auto larger = pool_.take(static_cast<size_t>(size) * sizeof(int64_t));
    if (used > 0) std::memcpy(larger->data(), buffer_->data(), used * sizeof(int64_t));
    buffer_ = std::move(larger);
  }
  int64_t* data() const { return reinterpret_cast<int64_t*>(buffer_->data()); }
  std::shared_ptr<Buffer> release() { return std::move(buffer_); }

 private:
  BufferPool& pool_;
  std::shared_ptr<Buffer> buffer_;
};

template <class Id>
struct Graph {
  const int64_t* indptr;
  const Id* indices;
  int64_t num_nodes;
};

/// What a batch needs beside its output, kept from batch to batch.
template <class Id>
struct Workspace {
  IdTable<Id> table;
  HostArray<int64_t> first_edge;  // per frontier node, in the graph
  HostArray<uint32_t> degree;     // per frontier node
};

template <class Id>
class BatchSampling {
 public:
  BatchSampling(const Graph<Id>& graph, Workspace<Id>& workspace, BufferPool& buffers,
                ThreadPool& threads, uint64_t key)
      : graph_(graph),
        workspace_(workspace),
        threads_(threads),
        key_(key),
        n_id_(buffers),
        edges_(buffers),
        indptr_(buffers) {}

  SampledSubgraph run(std::span<const int64_t> seeds, const std::vector<int64_t>& fanouts) {
    add_seeds(seeds);
    for (size_t hop = 0; hop < fanouts.size(); ++hop) {
      expand(static_cast<uint32_t>(hop), fanouts[hop]);
    }
    result_.num_nodes = workspace_.table.size();
    result_.n_id = n_id_.release();
    result_.edges = edges_.release();
    result_.indptr = indptr_.release();
    return std::move(result_);
  }

 private:
  void add_seeds(std::span<const int64_t> seeds) {
    const int64_t count = static_cast<int64_t>(seeds.size());
    IdTable<Id>& table = workspace_.table;
    table.reset(graph_.num_nodes);
    n_id_.grow(count + 1, 0);
    table.reserve(count, n_id_.data());
    for (int64_t i = 0; i < count; ++i) {
      check_argument(seeds[i] >= 0 && seeds[i] < graph_.num_nodes, "seeds: expected ids in [0, ",
                     graph_.num_nodes, "), got ", seeds[i], " at position ", i);
      const int32_t local = table.insert(static_cast<Id>(seeds[i]), n_id_.data() + table.size());
      check_argument(local == i, "seeds: expected distinct ids, got ", seeds[i], " at positions ",
                     local, " and ", i);
    }
    result_.num_sampled_nodes.push_back(count);
    indptr_.grow(1, 0);
    indptr_.data()[0] = 0;
    edges_.grow(0, 0);
  }

  void expand(uint32_t hop, int64_t fanout) {
    const int64_t begin = result_.num_expanded;
    const int64_t end = workspace_.table.size();
    const int64_t old_edges = result_.num_edges;
    count_edges(begin, end, fanout);
    const int64_t new_edges = indptr_.data()[end] - old_edges;
    make_room(new_edges);
    draw_hop(begin, end, hop);
    result_.num_expanded = end;
    result_.num_sampled_edges.push_back(new_edges);
    result_.num_sampled_nodes.push_back(workspace_.table.size() - end);
  }

  /// Extends indptr over nodes [begin, end) and notes where their edges are in the graph.
  void count_edges(int64_t begin, int64_t end, int64_t fanout) {
    indptr_.grow(end + 1, begin + 1);
    workspace_.first_edge.resize_discarding(end - begin);
    workspace_.degree.resize_discarding(end - begin);
    const int64_t* n_id = n_id_.data();
    int64_t* indptr = indptr_.data();
    const uint64_t limit = fanout < 0 ? UINT64_MAX : static_cast<uint64_t>(fanout);
    for (int64_t i = begin; i < end; ++i) {
      if (i + kNodesAhead < end) __builtin_prefetch(graph_.indptr + n_id[i + kNodesAhead]);
      const int64_t first = graph_.indptr[n_id[i]];
      const uint64_t degree = static_cast<uint64_t>(graph_.indptr[n_id[i] + 1] - first);
      workspace_.first_edge[i - begin] = first;
      workspace_.degree[i - begin] = static_cast<uint32_t>(degree);
      indptr[i + 1] = indptr[i] + static_cast<int64_t>(std::min(degree, limit));
    }
  }

  /// The last hop's edges are most of a batch; exact sizes are known before they are drawn, so they
  /// are written in place and only the earlier hops' are moved.
  void make_room(int64_t new_edges) {
    const int64_t old_edges = result_.num_edges;
    const int64_t total = old_edges + new_edges;
    const auto old = edges_.release();
    edges_.grow(2 * total, 0);
    if (old_edges > 0) {
      const auto* from = reinterpret_cast<const int64_t*>(old->data());
      std::copy_n(from, old_edges, edges_.data());
      std::copy_n(from + old_edges, old_edges, edges_.data() + total);
    }
    result_.num_edges = total;
    const int64_t nodes = workspace_.table.size();
    const int64_t max_nodes = std::min(nodes + new_edges, graph_.num_nodes);
    n_id_.grow(max_nodes + 1, nodes);
    workspace_.table.reserve(max_nodes, n_id_.data());
  }

  void draw_hop(int64_t begin, int64_t end, uint32_t hop) {
    if (threads_.num_threads() == 1) {
      for_each_block(begin, end, [&](int64_t from, int64_t to) {
        draw_block(begin, from, to, hop);
        relabel(from, to);
      });
      return;
    }
    threads_.parallel_for(end - begin, kNodesPerTask, [&](int64_t from, int64_t to) {
      for_each_block(begin + from, begin + to,
                     [&](int64_t a, int64_t b) { draw_block(begin, a, b, hop); });
    });
    relabel(begin, end);
  }

  /// Cuts nodes [begin, end) into blocks of about kBlockEdges edges.
  template <class Body>
  void for_each_block(int64_t begin, int64_t end, const Body& body) const {
    const int64_t* indptr = indptr_.data();
    while (begin < end) {
      int64_t stop = begin + 1;
      while (stop < end && indptr[stop + 1] - indptr[begin] <= kBlockEdges) ++stop;
      body(begin, stop);
      begin = stop;
    }
  }

  /// Writes global source ids and local destinations of the in-edges drawn for nodes [from, to).
  void draw_block(int64_t begin, int64_t from, int64_t to, uint32_t hop) {
    const int64_t* indptr = indptr_.data();
    int64_t* sources = edges_.data();
    int64_t* destinations = sources + result_.num_edges;
    for (int64_t i = from; i < to; ++i) {
      const uint32_t count = static_cast<uint32_t>(indptr[i + 1] - indptr[i]);
      draw_node(i, workspace_.first_edge[i - begin], workspace_.degree[i - begin], count, hop,
                sources + indptr[i]);
      std::fill_n(destinations + indptr[i], count, i);
    }
    load_sources(indptr[from], indptr[to]);
  }

  /// Writes the edge numbers (in the graph) drawn for local node i, and fetches what they lead to.
  void draw_node(int64_t i, int64_t first_edge, uint32_t degree, uint32_t count, uint32_t hop,
                 int64_t* edges) {
    if (count == degree) {
      for (uint32_t j = 0; j < count; ++j) {
        edges[j] = first_edge + j;
        __builtin_prefetch(graph_.indices + first_edge + j);
      }
      return;
    }
    PhiloxStream random(key_, static_cast<uint64_t>(n_id_.data()[i]), hop);
    uint32_t small[kMaxListedPositions];
    uint32_t* positions = small;
    std::vector<uint32_t> large;
    if (count > kMaxListedPositions) {
      large.resize(count + draw_scratch_words(count));
      positions = large.data();
    }
    draw_positions(random, degree, count, positions + count, positions);
    for (uint32_t j = 0; j < count; ++j) {
      edges[j] = first_edge + positions[j];
      __builtin_prefetch(graph_.indices + edges[j]);
    }
  }

  /// Replaces edge numbers by the ids of their sources.
  void load_sources(int64_t begin, int64_t end) {
    int64_t* sources = edges_.data();
    const uint64_t num_nodes = static_cast<uint64_t>(graph_.num_nodes);
    bool in_range = true;
    for (int64_t e = begin; e < end; ++e) {
      sources[e] = graph_.indices[sources[e]];
      in_range &= static_cast<uint64_t>(sources[e]) < num_nodes;
    }
    if (in_range) return;
    const int64_t bad = *std::find_if(sources + begin, sources + end, [=](int64_t id) {
      return static_cast<uint64_t>(id) >= num_nodes;
    });
    throw ArgumentError(concat("indices: expected ids in [0, ", num_nodes, "), got ", bad,
                               "; the topology is damaged: check it with `lsm data verify`"));
  }

  /// Replaces the source ids of nodes [from, to) by local indices.
  void relabel(int64_t from, int64_t to) {
    IdTable<Id>& table = workspace_.table;
    int64_t* sources = edges_.data();
    const int64_t last = indptr_.data()[to];
    for (int64_t e = indptr_.data()[from]; e < last; e += table.kWindow) {
      const int64_t stop = std::min(e + table.kWindow, last);
      for (int64_t j = e; j < stop; ++j) table.prefetch(static_cast<Id>(sources[j]));
      table.relabel(std::span(sources + e, sources + stop), n_id_.data());
    }
  }

  const Graph<Id>& graph_;
  Workspace<Id>& workspace_;
  ThreadPool& threads_;
  const uint64_t key_;
  OutputArray n_id_;
  OutputArray edges_;
  OutputArray indptr_;
  SampledSubgraph result_;
};

template <class Id>
class CscSampler final : public NeighborSampler {
 public:
  CscSampler(Graph<Id> graph, std::vector<int64_t> fanouts, int num_threads)
      : graph_(graph),
        fanouts_(std::move(fanouts)),
        threads_(num_threads),
        buffers_(std::make_shared<BufferPool>(kMaxIdleOutputBytes)) {}

  SampledSubgraph sample(std::span<const int64_t> seeds, const BatchName& batch) override {
    const uint64_t key = batch_key(batch.seed, batch.epoch, batch.iteration, batch.rank);
    auto workspace = take_workspace();
    auto subgraph =
        BatchSampling<Id>(graph_, *workspace, *buffers_, threads_, key).run(seeds, fanouts_);
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
    return subgraph;
  }

 private:
  std::unique_ptr<Workspace<Id>> take_workspace() {
    std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Workspace<Id>>();
    auto workspace = std::move(idle_.back());
    idle_.pop_back();
    return workspace;
  }

  const Graph<Id> graph_;
  const std::vector<int64_t> fanouts_;
  ThreadPool threads_;
  const std::shared_ptr<BufferPool> buffers_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace<Id>>> idle_;
};

}  // namespace

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
  if (valid) return num_nodes;
  int64_t v = 0;
  while (static_cast<uint64_t>(indptr[v + 1] - indptr[v]) < UINT32_MAX) ++v;
  throw ArgumentError(concat("indptr: expected degrees in [0, 2^32 - 1), node ", v, " has ",
                             indptr[v + 1] - indptr[v]));
}

std::unique_ptr<NeighborSampler> make_neighbor_sampler(const TensorView& indptr,
                                                       const TensorView& indices,
                                                       std::vector<int64_t> fanouts,
                                                       int num_threads) {
  for (const int64_t fanout : fanouts) {
    check_argument(fanout >= -1 && fanout <= kMaxFanout,
                   "num_neighbors: expected -1 (all) or 0 to 2^29 per hop, got ", fanout);
  }
  const auto offsets = indptr.as<const int64_t>("indptr");
  const int64_t num_nodes = check_indptr(offsets, indices.num_elements());
  if (indices.dtype == dtype_of<int32_t>()) {
    check_argument(num_nodes <= INT32_MAX, "indices: expected int64 for ", num_nodes, " nodes");
    const Graph<int32_t> graph{offsets.data(), indices.as<const int32_t>("indices").data(),
                               num_nodes};
    return std::make_unique<CscSampler<int32_t>>(graph, std::move(fanouts), num_threads);
  }
  const Graph<int64_t> graph{offsets.data(), indices.as<const int64_t>("indices").data(),
                             num_nodes};
  return std::make_unique<CscSampler<int64_t>>(graph, std::move(fanouts), num_threads);
}

}  // namespace lsm
