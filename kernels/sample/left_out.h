// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// In-edges that a batch must not take, such as those that it learns to predict.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sample/graph.h"

namespace lsm {

/// Edges by their ends, [n] each, ascending by destination, then by source. Not owned. Stands for
/// all parallel edges between these ends.
struct ExcludedPairs {
  std::span<const int64_t> destinations;
  std::span<const int64_t> sources;
};

/// The in-edges of a batch's nodes that are left out. find() is called once for each node, in
/// ascending order. A node is then drawn from as if it had only its other in-edges, one after
/// another: shift() makes numbers of these those of the graph.
template <class Id>
class LeftOutEdges {
 public:
  explicit LeftOutEdges(const ExcludedPairs& pairs) : pairs_(pairs) {}

  bool is_given() const { return !pairs_.destinations.empty(); }
  bool has_any() const { return !nodes_.empty(); }

  /// Finds the edges to leave out of `in`, the in-edges of `node`, which is `local` in the batch.
  /// Returns their positions, ascending, less the number of those before each.
  std::span<const uint32_t> find(const Graph<Id>& graph, int64_t local, int64_t node,
                                 const InEdges& in) {
    const auto [from, to] = std::ranges::equal_range(pairs_.destinations, node);
    if (from == to) return {};
    const std::span sources = pairs_.sources.subspan(from - pairs_.destinations.begin(), to - from);
    const size_t begin = kept_before_.size();
    for (uint32_t j = 0; j < in.degree; ++j) {
      if (!std::ranges::binary_search(sources, static_cast<int64_t>(graph.indices[in.first + j]))) {
        continue;
      }
      kept_before_.push_back(j - static_cast<uint32_t>(kept_before_.size() - begin));
    }
    if (kept_before_.size() == begin) return {};
    nodes_.push_back({local, in.first, begin, kept_before_.size()});
    return of(nodes_.back());
  }

  /// `values` of the other in-edges of a node, those of `in`; `scratch` is working memory.
  template <class Value>
  const Value* kept(const Value* values, int64_t local, const InEdges& in,
                    std::vector<Value>& scratch) const {
    const Node* const node = find_node(local);
    if (node == nullptr) return values + in.first;
    scratch.resize(in.degree);
    for (uint32_t j = 0; j < in.degree; ++j) scratch[j] = values[real(*node, in.first + j)];
    return scratch.data();
  }

  /// Makes edges [begin, end) of a batch, in which node i's lie from `indptr[i]` to
  /// `indptr[i + 1]`, edges of the graph.
  void shift(int64_t begin, int64_t end, const int64_t* indptr, int64_t* edges) const {
    auto node = std::ranges::partition_point(
        nodes_, [&](const Node& each) { return indptr[each.local + 1] <= begin; });
    for (; node != nodes_.end() && indptr[node->local] < end; ++node) {
      const int64_t first = std::max(indptr[node->local], begin);
      const int64_t last = std::min(indptr[node->local + 1], end);
      for (int64_t e = first; e < last; ++e) edges[e] = real(*node, edges[e]);
    }
  }

 private:
  struct Node {
    int64_t local;
    int64_t first_edge;
    size_t begin, end;  // in kept_before_
  };

  std::span<const uint32_t> of(const Node& node) const {
    return std::span(kept_before_).subspan(node.begin, node.end - node.begin);
  }

  int64_t real(const Node& node, int64_t edge) const {
    const auto kept_before = of(node);
    const auto position = static_cast<uint32_t>(edge - node.first_edge);
    return edge + (std::ranges::upper_bound(kept_before, position) - kept_before.begin());
  }

  const Node* find_node(int64_t local) const {
    const auto found = std::ranges::lower_bound(nodes_, local, {}, &Node::local);
    return found != nodes_.end() && found->local == local ? &*found : nullptr;
  }

  const ExcludedPairs pairs_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> kept_before_;
};

}  // namespace lsm
