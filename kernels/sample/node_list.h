// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The nodes of one type that a batch has, in the order in which it met them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "kernels/core/buffer.h"
#include "kernels/core/check.h"
#include "kernels/sample/sampler.h"
#include "kernels/sample/unique.h"

namespace lsm {

/// Most idle memory of samples that is kept for the next ones.
constexpr size_t kMaxIdleOutputBytes = size_t{256} << 20;

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
  std::shared_ptr<HostBuffer> release() { return std::move(buffer_); }

 private:
  BufferPool& pool_;
  std::shared_ptr<HostBuffer> buffer_;
};

/// Nodes of one batch, each once: the seeds, then the new nodes of each hop. A hop expands those
/// that the hop before it added, its frontier. With several subgraphs a node is there once for
/// each, as the id `subgraph * num_nodes + node`.
template <class Id>
class NodeList {
 public:
  /// `table` is working memory.
  NodeList(IdTable<Id>& table, BufferPool& buffers, int64_t num_nodes)
      : table_(table),
        n_id_(buffers),
        subgraph_(buffers),
        num_nodes_(num_nodes),
        inverse_(1.0 / static_cast<double>(num_nodes)) {}

  /// Begins with `seeds`, of which there are no others. `first_subgraph`: that of the first seed,
  /// of `num_subgraphs`; each further one has the next. Negative: one subgraph has all.
  void add_seeds(std::span<const int64_t> seeds, int64_t first_subgraph, int64_t num_subgraphs) {
    const int64_t count = static_cast<int64_t>(seeds.size());
    is_split_ = first_subgraph >= 0;
    limit_ = num_nodes_ * (is_split_ ? num_subgraphs : 1);
    table_.reset(limit_);
    n_id_.grow(count + 1, 0);
    table_.reserve(count, n_id_.data());
    for (int64_t i = 0; i < count; ++i) {
      check_argument(seeds[i] >= 0 && seeds[i] < num_nodes_, "seeds: expected ids in [0, ",
                     num_nodes_, "), got ", seeds[i], " at position ", i);
      const int64_t id = is_split_ ? (first_subgraph + i) * num_nodes_ + seeds[i] : seeds[i];
      const int32_t local = table_.insert(static_cast<Id>(id), n_id_.data());
      check_argument(local == i, "seeds: expected distinct ids, got ", seeds[i], " at positions ",
                     local, " and ", i);
    }
    end_hop();
  }

  /// The frontier of the hop that begins: nodes [begin(), end()).
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  /// Ends a hop: its new nodes are the next frontier.
  void end_hop() {
    begin_ = end_;
    end_ = table_.size();
    result_.num_sampled_nodes.push_back(end_ - begin_);
    if (!is_split_) return;
    subgraph_.grow(std::max<int64_t>(end_, 1), begin_);
    for (int64_t i = begin_; i < end_; ++i) subgraph_.data()[i] = subgraph_of(n_id_.data()[i]);
  }

  /// Makes room for as many new nodes.
  void reserve(int64_t new_nodes) {
    const int64_t size = table_.size();
    const int64_t most = std::min(size + new_nodes, limit_);
    n_id_.grow(most + 1, size);
    table_.reserve(most, n_id_.data());
  }

  LSM_ONLY_PREFETCHES void prefetch(std::span<const int64_t> ids) const { table_.prefetch(ids); }
  /// Replaces ids of this list, new ones included, by local indices, which may be the same memory.
  void relabel(std::span<const int64_t> ids, int64_t* locals) {
    table_.relabel(ids, locals, n_id_.data());
  }

  bool is_split() const { return is_split_; }
  /// Ids of this list.
  const int64_t* ids() const { return n_id_.data(); }
  int64_t size() const { return table_.size(); }
  int64_t num_nodes() const { return num_nodes_; }
  /// The subgraph of each node before end(). Precondition: is_split().
  const int64_t* subgraphs() const { return subgraph_.data(); }
  /// The node in the graph. Precondition: before end().
  int64_t node(int64_t local) const {
    const int64_t id = n_id_.data()[local];
    return is_split_ ? id - subgraph_.data()[local] * num_nodes_ : id;
  }

  /// Call once, after the last hop.
  SampledNodes release() {
    result_.num_nodes = table_.size();
    if (is_split_) {
      int64_t* const n_id = n_id_.data();
      for (int64_t i = 0; i < end_; ++i) n_id[i] = node(i);
      result_.subgraph = subgraph_.release();
    }
    result_.n_id = n_id_.release();
    return std::move(result_);
  }

 private:
  /// id / num_nodes_, by a product, since a division of 64 bits would take a tenth of all time.
  int64_t subgraph_of(int64_t id) const {
    const int64_t guess = static_cast<int64_t>(static_cast<double>(id) * inverse_);
    const int64_t rest = id - guess * num_nodes_;
    return guess + (rest >= num_nodes_) - (rest < 0);
  }

  IdTable<Id>& table_;
  OutputArray n_id_;
  OutputArray subgraph_;
  const int64_t num_nodes_;
  const double inverse_;
  int64_t limit_ = 0;  // ids of this list are below
  bool is_split_ = false;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  SampledNodes result_;
};

}  // namespace lsm
