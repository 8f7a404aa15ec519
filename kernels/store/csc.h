// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Counting sort of an edge list by destination, a chunk at a time: one pass over the edges calls
// count_degrees, a second one fill or fill_order. All write memory that the caller owns.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// A chunk of an edge list: edge i goes from sources[i * stride], one of `num_sources` nodes, to
/// destinations[i * stride]. `first_edge` is the position of edge 0 in the whole list.
template <class Id>
struct EdgeChunk {
  const Id* sources;
  const Id* destinations;
  int64_t stride;
  int64_t size;
  int64_t num_sources;
  int64_t first_edge;
};

/// Adds one to degrees[v] for each edge to v; degrees has one element per destination. Throws
/// ArgumentError, naming the first bad edge of the chunk, unless sources are in [0, num_sources)
/// and destinations in [0, degrees.size()); degrees is unchanged then.
template <class Id>
void count_degrees(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> degrees);

/// Appends the source of each edge whose destination v is in [first_node, last_node) to v's list:
/// indices[cursors[v]++ - first_index]. Lists keep the order of the edges, whatever the number of
/// threads. Throws ArgumentError for edges that count_degrees would have refused, and for a
/// position outside `indices`: the edges then differ from the counted ones.
template <class Id, class Index>
void fill(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> cursors,
          int64_t first_node, int64_t last_node, int64_t first_index, std::span<Index> indices);

/// As fill, with the position of the edge in the whole list in place of its source.
template <class Id>
void fill_order(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> cursors,
                int64_t first_node, int64_t last_node, int64_t first_index,
                std::span<int64_t> order);

/// Sorts each list of `values` by its key, then by value. List v ends before ends[v] - first_index,
/// where the next one begins; the first begins at 0. Throws ArgumentError unless ends ascend,
/// within `values`, and each value has a key.
void sort_lists(ThreadPool& pool, std::span<const int64_t> ends, int64_t first_index,
                std::span<const int64_t> keys, std::span<int64_t> values);

}  // namespace lsm
