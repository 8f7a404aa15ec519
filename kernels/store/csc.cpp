// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/store/csc.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/core/check.h"

namespace lsm {
namespace {

struct Range {
  int64_t begin, end;
};

/// Part t of `parts` equal parts of [begin, end).
Range part_of(int64_t begin, int64_t end, int64_t t, int64_t parts) {
  const int64_t size = end - begin;
  return {begin + size * t / parts, begin + size * (t + 1) / parts};
}

/// In one comparison, of unsigned numbers, which may wrap: 8 % faster in a count than two.
bool contains(Range range, int64_t id) {
  const auto begin = static_cast<uint64_t>(range.begin);
  return static_cast<uint64_t>(id) - begin < static_cast<uint64_t>(range.end) - begin;
}

/// Calls body(t) for t in [0, pool.num_threads()).
template <class Body>
void for_each_thread(ThreadPool& pool, const Body& body) {
  pool.parallel_for(pool.num_threads(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) body(t);
  });
}

template <class Id>
void check_ids(ThreadPool& pool, const EdgeChunk<Id>& edges, int64_t num_destinations) {
  const Range from{0, edges.num_sources}, to{0, num_destinations};
  const int64_t parts = pool.num_threads();
  std::vector<int64_t> first_bad(parts, edges.size);
  for_each_thread(pool, [&](int64_t t) {
    const Range part = part_of(0, edges.size, t, parts);
    for (int64_t i = part.begin; i < part.end; ++i) {
      if (contains(from, edges.sources[i * edges.stride]) &&
          contains(to, edges.destinations[i * edges.stride])) {
        continue;
      }
      first_bad[t] = i;
      return;
    }
  });
  const int64_t bad = *std::min_element(first_bad.begin(), first_bad.end());
  if (bad == edges.size) return;
  const int64_t source = edges.sources[bad * edges.stride];
  const bool source_bad = !contains(from, source);
  const int64_t value = source_bad ? source : edges.destinations[bad * edges.stride];
  throw ArgumentError(
      concat("edge ", edges.first_edge + bad, ": ", source_bad ? "source " : "destination ", value,
             " is not a node: expected an id in [0, ", (source_bad ? from : to).end, ")"));
}

/// The body of fill and fill_order: edge i of the chunk gives value_of(i).
template <class Id, class Value, class ValueOf>
void fill_with(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> cursors,
               int64_t first_node, int64_t last_node, int64_t first_index, std::span<Value> values,
               const ValueOf& value_of) {
  const auto num_nodes = static_cast<int64_t>(cursors.size());
  check_argument(0 <= first_node && first_node <= last_node && last_node <= num_nodes,
                 "nodes: expected a range in [0, ", num_nodes, "), got [", first_node, ", ",
                 last_node, ")");
  check_ids(pool, edges, num_nodes);
  const int64_t end_index = first_index + static_cast<int64_t>(values.size());
  // One thread fills all lists of its nodes, in the order of the edges: the result is stable.
  for_each_thread(pool, [&](int64_t t) {
    const Range mine = part_of(first_node, last_node, t, pool.num_threads());
    for (int64_t i = 0; i < edges.size; ++i) {
      const int64_t v = edges.destinations[i * edges.stride];
      if (!contains(mine, v)) continue;
      const int64_t slot = cursors[v]++;
      check_argument(first_index <= slot && slot < end_index, "edge ", edges.first_edge + i,
                     ": the edge list changed while it was read");
      values[slot - first_index] = value_of(i);
    }
  });
}

}  // namespace

template <class Id>
void count_degrees(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> degrees) {
  const auto num_nodes = static_cast<int64_t>(degrees.size());
  check_ids(pool, edges, num_nodes);
  // Each thread reads all destinations and counts those in its part of the nodes: no atomics.
  for_each_thread(pool, [&](int64_t t) {
    const Range mine = part_of(0, num_nodes, t, pool.num_threads());
    for (int64_t i = 0; i < edges.size; ++i) {
      const int64_t v = edges.destinations[i * edges.stride];
      if (contains(mine, v)) ++degrees[v];
    }
  });
}

template <class Id, class Index>
void fill(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> cursors,
          int64_t first_node, int64_t last_node, int64_t first_index, std::span<Index> indices) {
  fill_with(pool, edges, cursors, first_node, last_node, first_index, indices,
            [&](int64_t i) { return static_cast<Index>(edges.sources[i * edges.stride]); });
}

template <class Id>
void fill_order(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> cursors,
                int64_t first_node, int64_t last_node, int64_t first_index,
                std::span<int64_t> order) {
  fill_with(pool, edges, cursors, first_node, last_node, first_index, order,
            [&](int64_t i) { return edges.first_edge + i; });
}

void sort_lists(ThreadPool& pool, std::span<const int64_t> ends, int64_t first_index,
                std::span<const int64_t> keys, std::span<int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  check_argument(keys.size() == values.size(), "keys: expected ", size, ", got ", keys.size());
  int64_t last_end = first_index;
  for (const int64_t end : ends) {
    check_argument(last_end <= end && end - first_index <= size,
                   "ends: expected ascending ones in [", first_index, ", ", first_index + size,
                   "], got ", end);
    last_end = end;
  }
  pool.parallel_for(static_cast<int64_t>(ends.size()), 1024, [&](int64_t first, int64_t last) {
    std::vector<std::pair<int64_t, int64_t>> list;
    for (int64_t v = first; v < last; ++v) {
      const int64_t begin = v == 0 ? 0 : ends[v - 1] - first_index, end = ends[v] - first_index;
      list.clear();
      for (int64_t i = begin; i < end; ++i) list.emplace_back(keys[i], values[i]);
      std::sort(list.begin(), list.end());
      for (int64_t i = begin; i < end; ++i) values[i] = list[i - begin].second;
    }
  });
}

template void count_degrees(ThreadPool&, const EdgeChunk<int32_t>&, std::span<int64_t>);
template void count_degrees(ThreadPool&, const EdgeChunk<int64_t>&, std::span<int64_t>);
template void fill(ThreadPool&, const EdgeChunk<int32_t>&, std::span<int64_t>, int64_t, int64_t,
                   int64_t, std::span<int32_t>);
template void fill(ThreadPool&, const EdgeChunk<int64_t>&, std::span<int64_t>, int64_t, int64_t,
                   int64_t, std::span<int32_t>);
template void fill(ThreadPool&, const EdgeChunk<int32_t>&, std::span<int64_t>, int64_t, int64_t,
                   int64_t, std::span<int64_t>);
template void fill(ThreadPool&, const EdgeChunk<int64_t>&, std::span<int64_t>, int64_t, int64_t,
                   int64_t, std::span<int64_t>);
template void fill_order(ThreadPool&, const EdgeChunk<int32_t>&, std::span<int64_t>, int64_t,
                         int64_t, int64_t, std::span<int64_t>);
template void fill_order(ThreadPool&, const EdgeChunk<int64_t>&, std::span<int64_t>, int64_t,
                         int64_t, int64_t, std::span<int64_t>);

}  // namespace lsm
