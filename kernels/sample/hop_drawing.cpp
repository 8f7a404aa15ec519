// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/hop_drawing.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/core/philox.h"
#include "kernels/core/prefetch.h"
#include "kernels/sample/draw.h"
#include "kernels/sample/draw_simd.h"
#include "kernels/sample/labor_choice.h"
#include "kernels/sample/weighted_choice.h"

namespace lsm {
namespace {

/// Nodes that are drawn together.
struct SimdGroup {
  int size = 0;
  int64_t node[DrawSimd::kLanes];
  InEdges in[DrawSimd::kLanes];
  DrawSimd lanes;

  bool is_full() const { return size == DrawSimd::kLanes; }

  void add(int64_t local, const InEdges& in_edges, uint64_t id) {
    node[size] = local;
    in[size] = in_edges;
    lanes.set(size, id, in_edges.degree);
    ++size;
  }

  /// Fills empty lanes with a node to draw.
  void fill_up() {
    for (int l = size; l < DrawSimd::kLanes; ++l) lanes.set(l, 0, lanes.degree[0]);
  }
};

/// The ways of drawing in-edges for nodes of a hop. Each is out of line: in one function, the hot
/// loop of each would have the registers of all. Each copies the hop, which its stores might change
/// otherwise.
template <class Id>
class InEdgeDrawing {
 public:
  InEdgeDrawing(const Graph<Id>& graph, const Hop& hop, const LeftOutEdges<Id>& left_out)
      : graph_(graph), hop_(hop), left_out_(left_out) {}

  /// LABOR's.
  [[gnu::noinline]] void by_source(int64_t from, int64_t to) const {
    LaborChoice choice(*hop_.draws);
    std::vector<Id> kept;
    choose_block(from, to, [&](int64_t i, const InEdges& in, uint32_t count, int64_t* edges) {
      const Id* const sources = left_out_.kept(graph_.indices, i, in, kept);
      choice.choose(sources, in.degree, count, in.first, edges);
    });
  }

  [[gnu::noinline]] void by_weight(int64_t from, int64_t to) const {
    WeightedChoice choice;
    std::vector<float> kept;
    choose_block(from, to, [&](int64_t i, const InEdges& in, uint32_t count, int64_t* edges) {
      PhiloxStream random = stream_of(i);
      const float* const weights = left_out_.kept(graph_.weights, i, in, kept);
      choice.choose(random, {weights, in.degree}, count, in.first, edges);
    });
  }

  [[gnu::noinline]] void uniformly(int64_t from, int64_t to) const {
    const Hop hop = hop_;
    const int64_t* indptr = hop.indptr;
    SimdGroup group;
    for (int64_t i = from; i < to; ++i) {
      const uint32_t count = static_cast<uint32_t>(indptr[i + 1] - indptr[i]);
      const InEdges& in = hop.in_edges[i - hop.first_node];
      std::fill_n(hop.destinations + indptr[i], count, i);
      if (count == in.degree) {
        if (count > 0) prefetch_list(in);
        std::iota(hop.sources + indptr[i], hop.sources + indptr[i + 1], in.first);
      } else if (count > DrawSimd::kMaxCount) {
        draw_alone(i, in, count);
      } else if (count > 0) {
        group.add(i, in, static_cast<uint64_t>(hop.n_id[i]));
        if (group.is_full()) draw_group(group, count);
      }
    }
    // All nodes that do not take all their edges have the same count.
    if (group.size > 0) {
      const int64_t i = group.node[0];
      draw_group(group, static_cast<uint32_t>(indptr[i + 1] - indptr[i]));
    }
  }

 private:
  static constexpr int64_t kIdsPerLine = 64 / sizeof(Id);

  LSM_ONLY_PREFETCHES void prefetch_list(const InEdges& in) const {
    const Id* const first = graph_.indices + in.first;
    // The hardware prefetcher follows longer lists by itself.
    const int64_t count = std::min<int64_t>(in.degree, 8 * kIdsPerLine);
    for (int64_t j = 0; j < count; j += kIdsPerLine) __builtin_prefetch(first + j);
    __builtin_prefetch(first + count - 1);  // lists need not begin at a cache line
  }

  PhiloxStream stream_of(int64_t i) const {
    return {hop_.key, static_cast<uint64_t>(hop_.n_id[i]), hop_.number};
  }

  /// choose(node, in_edges, count, edges) writes the numbers of some in-edges.
  template <class Choose>
  void choose_block(int64_t from, int64_t to, const Choose& choose) const {
    const Hop hop = hop_;
    const int64_t* indptr = hop.indptr;
    for (int64_t i = from; i < to; ++i) {
      if (indptr[i + 1] > indptr[i]) prefetch_list(hop.in_edges[i - hop.first_node]);
    }
    for (int64_t i = from; i < to; ++i) {
      const uint32_t count = static_cast<uint32_t>(indptr[i + 1] - indptr[i]);
      const InEdges& in = hop.in_edges[i - hop.first_node];
      int64_t* edges = hop.sources + indptr[i];
      std::fill_n(hop.destinations + indptr[i], count, i);
      if (count == in.degree) {
        std::iota(edges, edges + count, in.first);
      } else if (count > 0) {
        choose(i, in, count, edges);
      }
    }
  }

  void draw_group(SimdGroup& group, uint32_t count) const {
    group.fill_up();
    DrawSimd& lanes = group.lanes;
    draw_simd(lanes, count, hop_.key, hop_.number);
    for (int l = 0; l < group.size; ++l) {
      const InEdges& in = group.in[l];
      if (lanes.uncertain[l]) [[unlikely]] {
        draw_alone(group.node[l], in, count);
        continue;
      }
      int64_t* edges = hop_.sources + hop_.indptr[group.node[l]];
      for (uint32_t j = 0; j < count; ++j) edges[j] = in.first + lanes.positions[j][l];
      prefetch_edges(edges, count);
    }
    group.size = 0;
  }

  void draw_alone(int64_t i, const InEdges& in, uint32_t count) const {
    PhiloxStream random = stream_of(i);
    std::vector<uint32_t> positions(count + draw_scratch_words(count));
    draw_positions(random, in.degree, count, positions.data() + count, positions.data());
    int64_t* edges = hop_.sources + hop_.indptr[i];
    for (uint32_t j = 0; j < count; ++j) edges[j] = in.first + positions[j];
    prefetch_edges(edges, count);
  }

  LSM_ONLY_PREFETCHES void prefetch_edges(const int64_t* edges, uint32_t count) const {
    for (uint32_t j = 0; j < count; ++j) __builtin_prefetch(graph_.indices + edges[j]);
  }

  const Graph<Id>& graph_;
  const Hop& hop_;
  const LeftOutEdges<Id>& left_out_;
};

}  // namespace

template <class Id>
void HopDrawing<Id>::draw_block(int64_t from, int64_t to) const {
  const InEdgeDrawing<Id> drawing(graph_, hop_, left_out_);
  if (hop_.draws) return drawing.by_source(from, to);
  if (graph_.weights != nullptr) return drawing.by_weight(from, to);
  drawing.uniformly(from, to);
}

template <class Id>
void HopDrawing<Id>::load_sources(int64_t begin, int64_t end) const {
  int64_t* sources = hop_.sources;
  const uint64_t num_sources = static_cast<uint64_t>(graph_.num_sources);
  bool in_range = true;
  for (int64_t e = begin; e < end; ++e) {
    sources[e] = graph_.indices[sources[e]];
    in_range &= static_cast<uint64_t>(sources[e]) < num_sources;
  }
  if (in_range) return;
  for (int64_t e = begin; e < end; ++e) check_source(sources[e], graph_.num_sources);
}

template class HopDrawing<int32_t>;
template class HopDrawing<int64_t>;

}  // namespace lsm
