// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The nodes of one type that a batch has, on a Backend; NodeList is that of the host.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/core/backend_array.h"
#include "kernels/core/check.h"
#include "kernels/sample/sampler_functors.h"

namespace lsm {

/// Of `num_nodes` in the graph; is_split: each seed has a subgraph.
template <class Backend>
class NodesOnBackend {
 public:
  /// Places of numbers in SizesOnBackend: of the nodes before a hop's frontier, with it, and with
  /// those found since.
  struct Places {
    size_t begin, end, found;
  };

  NodesOnBackend(Backend& backend, int64_t num_nodes, bool is_split)
      : places(), backend_(backend), num_nodes_(num_nodes), is_split_(is_split) {}

  /// Begins a batch with these seeds of this type, of all types' `num_seeds`.
  void begin(std::span<const int64_t> seeds, int64_t num_seeds) {
    size_ = static_cast<int64_t>(seeds.size());
    if (is_split_) {
      upload_split(seeds, num_seeds);
    } else {
      n_id_.upload(seeds);
      limit_ = num_nodes_;
    }
    num_expanded_ = 0;
    capacity_ = 0;
    num_sampled_ = {size_};
  }

  /// Makes room for up to `num_new` further nodes, and enters those there are; `repeated`: of
  /// EnterNodes. The table is made anew only if it is too small. Returns the most nodes.
  int64_t reserve(int64_t num_new, int64_t* repeated) {
    const int64_t max_nodes = std::min(size_ + num_new, limit_);
    check_argument(max_nodes <= kMaxNodes, "a batch of up to ", max_nodes,
                   " nodes; at most 2^30 are supported: use smaller batches or fanouts");
    const int64_t* const n_id = n_id_.grow(max_nodes, size_);
    if (is_split_) subgraph_.grow(max_nodes, size_);
    const int64_t needed =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * max_nodes + 1)));
    if (needed <= capacity_ || max_nodes == 0) return max_nodes;
    capacity_ = needed;
    backend_.fill(table_ids_.grow(needed), 0xFF, needed * sizeof(int64_t));     // -1
    backend_.fill(table_values_.grow(needed), 0x7F, needed * sizeof(int64_t));  // above all
    backend_.for_each(size_, device_sample::EnterNodes{table(), n_id, repeated});
    return max_nodes;
  }

  /// Those found so far are the frontier of the hop that is queued next.
  void end_queued_hop() { places = {places.end, places.found, places.found}; }
  /// The host learns that there are `size` after a hop.
  void end_hop(int64_t size) {
    num_sampled_.push_back(size - size_);
    num_expanded_ = std::exchange(size_, size);
  }

  /// After the last hop: ids are those among all types.
  void move_ids(int64_t offset) {
    if (offset > 0 || is_split_) backend_.for_each(size_, device_sample::MoveIds{batch(), offset});
  }

  /// Valid until the next reserve().
  device_sample::BatchNodes batch() const {
    return {n_id_.data(), is_split_ ? subgraph_.data() : nullptr, num_nodes_};
  }
  device_sample::Table table() const {
    return {table_ids_.data(), table_values_.data(), static_cast<uint64_t>(capacity_ - 1)};
  }
  int64_t num_nodes() const { return num_nodes_; }
  /// The most that a batch may have.
  int64_t limit() const { return limit_; }
  int64_t size() const { return size_; }
  int64_t num_expanded() const { return num_expanded_; }
  int64_t num_frontier() const { return size_ - num_expanded_; }
  const std::vector<int64_t>& num_sampled() const { return num_sampled_; }

  Places places;

 private:
  static constexpr int64_t kMaxNodes = int64_t{1} << 30;

  void upload_split(std::span<const int64_t> seeds, int64_t num_seeds) {
    check_argument(num_nodes_ <= INT64_MAX / std::max<int64_t>(num_seeds, 1),
                   "seeds: too many for subgraphs over ", num_nodes_, " nodes");
    limit_ = num_nodes_ * num_seeds;
    std::vector<int64_t> ids(seeds.size()), subgraph(seeds.size());
    for (size_t i = 0; i < seeds.size(); ++i) {
      subgraph[i] = static_cast<int64_t>(i);
      ids[i] = subgraph[i] * num_nodes_ + seeds[i];
    }
    n_id_.upload(ids);
    subgraph_.upload(subgraph);
  }

  Backend& backend_;
  const int64_t num_nodes_;
  const bool is_split_;
  // As the host knows them.
  int64_t size_ = 0;
  int64_t limit_ = 0;
  int64_t num_expanded_ = 0;
  std::vector<int64_t> num_sampled_;
  int64_t capacity_ = 0;  // of the table, in this batch
  BackendArray<int64_t, Backend> n_id_{backend_};
  BackendArray<int64_t, Backend> subgraph_{backend_};
  BackendArray<int64_t, Backend> table_ids_{backend_};
  BackendArray<int64_t, Backend> table_values_{backend_};
};

}  // namespace lsm
