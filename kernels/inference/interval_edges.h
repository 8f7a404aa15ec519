// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Sums over the in-neighbours of an interval of destinations, while the rows of sources stream by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/thread_pool.h"

namespace lsm {

enum class Reduction { kSum, kMax };

/// The edges into an interval of destinations by batch of `batch_rows` consecutive sources. Within
/// a batch they are in order of destinations, and of sources for each. So a destination reduces its
/// rows in the order of sources, and its bits depend neither on the interval, nor on the batches,
/// nor on the number of threads. Takes 8 bytes an edge.
class IntervalEdges {
 public:
  /// The edges into nodes `first` to `last - 1`: indices[indptr[v]] to indices[indptr[v + 1] - 1]
  /// are the sources of node v. `one_loop`: each node is its own source once, however many edges to
  /// itself it has. Throws ArgumentError for a source outside [0, num_sources).
  template <class Id>
  IntervalEdges(ThreadPool& pool, std::span<const int64_t> indptr, std::span<const Id> indices,
                int64_t first, int64_t last, int64_t num_sources, int64_t batch_rows,
                bool one_loop);

  int64_t num_edges() const { return static_cast<int64_t>(sources_.size()); }
  int64_t num_batches() const { return num_batches_; }

  /// Adds each edge of `batch` to its destination's row of `reduced` [last - first, width], or
  /// takes the maximum. `rows` [batch_rows, width] are the batch's sources; the last batch may have
  /// fewer. Call with ascending batches.
  void reduce(ThreadPool& pool, int64_t batch, std::span<const float> rows, int64_t width,
              Reduction reduction, std::span<float> reduced) const;

 private:
  int64_t num_destinations_, num_sources_, batch_rows_, num_batches_, num_parts_;
  std::vector<int64_t> starts_;    // of part p of batch b: starts_[b * num_parts_ + p]
  std::vector<uint32_t> sources_;  // within the batch
  std::vector<uint32_t> targets_;  // within the interval
};

}  // namespace lsm
