// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Sums over the in-neighbours of an interval of destinations, while the rows of sources stream by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/thread_pool.h"

namespace lsm {

enum class Reduction { kSum, kMax };

/// The attention of graph attention networks with `heads` of `channels` values each, whose scores
/// pass a leaky ReLU with `slope`. Without `weights` a score is the sum of a number of the source,
/// which its row has for each head after its values, and one of the destination (GAT). With weights
/// [heads * channels] it is their product with the sum of both rows after the ReLU (GATv2).
struct Attention {
  int64_t heads, channels;
  float slope;
  std::span<const float> weights;

  int64_t num_values() const { return heads * channels; }
  int64_t source_width() const { return num_values() + (weights.empty() ? heads : 0); }
  int64_t own_width() const { return weights.empty() ? heads : num_values(); }
  /// Of a destination: sums of weighted values, then the highest score and the sum of weights by
  /// head.
  int64_t reduced_width() const { return num_values() + 2 * heads; }
};

/// The edges into an interval of destinations by batch of `batch_rows` consecutive sources. Within
/// a batch they are in order of destinations, and of sources for each. So a destination reduces its
/// rows in the order of sources, and its bits depend neither on the interval, nor on the batches,
/// nor on the number of threads. Takes 8 bytes an edge.
class IntervalEdges {
 public:
  /// The edges into nodes `first` to `last - 1`: indices[indptr[v]] to indices[indptr[v + 1] - 1]
  /// are the sources of node v. `one_loop`: each node is its own source once, however many edges to
  /// itself it has. Throws ArgumentError for a source outside [0, num_sources), and for an `indptr`
  /// that falls.
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

  /// Adds each edge of `batch` to its destination's row of `reduced` [last - first,
  /// reduced_width()], with the exponential of its score less the highest one so far as its weight.
  /// `rows` [batch_rows, source_width()] are the batch's sources; the last batch may have fewer.
  /// `own` [last - first, own_stride] are the destinations, of which the first own_width() count.
  /// Call with ascending batches, and first with sums of 0 and highest scores of minus infinity.
  void attend(ThreadPool& pool, int64_t batch, std::span<const float> rows,
              std::span<const float> own, int64_t own_stride, const Attention& attention,
              std::span<float> reduced) const;

 private:
  int64_t num_rows(int64_t batch) const;
  template <class Body>
  void for_each_slice(ThreadPool& pool, int64_t batch, const Body& body) const;

  int64_t num_destinations_, num_sources_, batch_rows_, num_batches_, num_parts_;
  std::vector<int64_t> starts_;    // of part p of batch b: starts_[b * num_parts_ + p]
  std::vector<uint32_t> sources_;  // within the batch
  std::vector<uint32_t> targets_;  // within the interval
};

}  // namespace lsm
