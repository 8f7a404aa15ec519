// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Counting sort of an edge list by destination, a chunk at a time: one pass over the edges calls
// count_degrees, a second one fill. Both write memory that the caller owns.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/thread_pool.h"

namespace lsm {

/// A chunk of an edge list: edge i goes from sources[i * stride] to destinations[i * stride].
/// `first_edge` is the position of edge 0 in the whole list, for messages.
template <class Id>
struct EdgeChunk {
  const Id* sources;
  const Id* destinations;
  int64_t stride;
  int64_t size;
  int64_t first_edge;
};

/// Adds one to degrees[v] for each edge to v; degrees has one element per node. Throws
/// ArgumentError, naming the first bad edge of the chunk, unless both ends are in
/// [0, degrees.size()); degrees is unchanged then.
template <class Id>
void count_degrees(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> degrees);

/// Appends the source of each edge whose destination v is in [first_node, last_node) to v's list:
/// indices[cursors[v]++ - first_index]. Lists keep the order of the edges, whatever the number of
/// threads. Throws ArgumentError for edges that count_degrees would have refused, and for a
/// position outside `indices`: the edges then differ from the counted ones.
template <class Id, class Index>
void fill(ThreadPool& pool, const EdgeChunk<Id>& edges, std::span<int64_t> cursors,
          int64_t first_node, int64_t last_node, int64_t first_index, std::span<Index> indices);

}  // namespace lsm
