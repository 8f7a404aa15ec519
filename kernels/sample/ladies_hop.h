// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// One hop of a batch that is sampled by LADIES on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/sample/hop_drawing.h"
#include "kernels/sample/ladies.h"
#include "kernels/sample/unique.h"

namespace lsm {

/// Keeps its memory from hop to hop. Not thread-safe.
template <class Id>
class LadiesHop {
 public:
  struct Layer {
    int64_t count;  // of nodes to sample
    uint64_t key;   // of the batch
    uint32_t hop;
    bool debias;
  };

  /// Chooses among the sources of `in_edges`, the in-edges of the last nodes of `known`, which are
  /// the batch's nodes. `num_edges`: number of in-edges.
  void choose(const Graph<Id>& graph, std::span<const int64_t> known,
              std::span<const InEdges> in_edges, int64_t num_edges, const Layer& layer) {
    graph_ = graph;
    in_edges_ = in_edges;
    debias_ = layer.debias;
    collect(known, num_edges);
    coefficients_.resize(candidates_.size());
    choose_layer(candidates_, layer.count, layer.key, layer.hop, layer.debias, coefficients_);
  }

  /// Replaces indptr[1 ..] of the hop's nodes by the chosen edges; indptr[0] precedes them.
  void count(int64_t* indptr) const {
    int64_t e = 0;
    for (size_t i = 0; i < in_edges_.size(); ++i) {
      int64_t kept = 0;
      for (uint32_t j = 0; j < in_edges_[i].degree; ++j) kept += coefficient(e++) > 0;
      indptr[i + 1] = indptr[i] + kept;
    }
  }

  /// Writes the sources' ids, destinations, the first of which is `first_node`, weights, and the
  /// edges' numbers in the graph unless `edge_ids` is null.
  void write(int64_t first_node, int64_t* sources, int64_t* destinations, float* weights,
             int64_t* edge_ids) const {
    int64_t e = 0;
    for (size_t i = 0; i < in_edges_.size(); ++i) {
      const InEdges& in = in_edges_[i];
      const int64_t begin = e;
      double divisor = in.degree;
      if (!debias_) {
        divisor = 0;
        for (uint32_t j = 0; j < in.degree; ++j) divisor += coefficient(begin + j);
      }
      for (uint32_t j = 0; j < in.degree; ++j, ++e) {
        if (!(coefficient(e) > 0)) continue;
        *sources++ = graph_.indices[in.first + j];
        *destinations++ = first_node + static_cast<int64_t>(i);
        if (edge_ids != nullptr) *edge_ids++ = in.first + j;
        *weights++ = static_cast<float>(coefficient(e) / divisor);
      }
    }
  }

 private:
  double coefficient(int64_t e) const { return coefficients_[candidate_of_[e]]; }

  void collect(std::span<const int64_t> known, int64_t num_edges) {
    const int64_t num_known = static_cast<int64_t>(known.size());
    const int64_t most = std::min(num_known + num_edges, graph_.num_nodes);
    table_.reset(graph_.num_nodes);
    ids_.resize(static_cast<size_t>(most) + 1);
    table_.reserve(most, ids_.data());
    for (const int64_t id : known) table_.insert(static_cast<Id>(id), ids_.data());
    candidate_of_.resize(num_edges);
    mass_.assign(static_cast<size_t>(most), 0);
    const int shift = mass_shift(static_cast<int64_t>(in_edges_.size()));
    int64_t e = 0;
    for (const InEdges& in : in_edges_) {
      const uint64_t mass = in.degree > 0 ? edge_mass(in.degree, shift) : 0;
      for (uint32_t j = 0; j < in.degree; ++j) {
        const Id id = graph_.indices[in.first + j];
        check_source(id, graph_.num_nodes);
        const int32_t local = table_.insert(id, ids_.data());
        candidate_of_[e++] = local;
        mass_[local] += mass;
      }
    }
    list_candidates(num_known);
  }

  /// Lists the candidates. Known nodes that are no source of the hop have no mass.
  void list_candidates(int64_t num_known) {
    candidates_.resize(table_.size());
    for (int64_t i = 0; i < table_.size(); ++i) {
      candidates_[i] = {ids_[i], mass_[i], i < num_known};
    }
  }

  Graph<Id> graph_{};
  std::span<const InEdges> in_edges_;
  bool debias_ = false;
  IdTable<Id> table_;
  std::vector<int64_t> ids_;
  std::vector<uint64_t> mass_;
  std::vector<int32_t> candidate_of_;  // by in-edge of the hop
  std::vector<LayerCandidate> candidates_;
  std::vector<double> coefficients_;
};

}  // namespace lsm
