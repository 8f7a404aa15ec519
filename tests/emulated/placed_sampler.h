// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tests/emulated/tests.h"

namespace lsm::testing {

/// A sampler, and the topology that it reads.
class PlacedSampler final : public GpuSampler {
 public:
  PlacedSampler(const SampledTypes& types, bool is_near, bool has_wide_ids) {
    std::vector<TypedEdges> edges = edges_of(types);
    std::vector<std::vector<int64_t>> wide;
    for (const auto& type : types.edges) {
      wide.emplace_back(type.graph.indices.begin(), type.graph.indices.end());
    }
    for (size_t i = 0; has_wide_ids && i < edges.size(); ++i) edges[i].indices = view_of(wide[i]);
    std::vector<TypedEdges> copies = edges;
    for (TypedEdges& copy : copies) {
      place(&copy.indptr, is_near);
      place(&copy.indices, is_near);
      if (copy.times) place(&*copy.times, is_near);
      if (copy.weights) place(&*copy.weights, is_near);
    }
    const TypedOptions options = options_of(types);
    std::vector<std::optional<TensorView>> node_times = options.node_times;
    for (auto& times : node_times) {
      if (times) place(&*times, is_near);
    }
    const GpuGraph placed =
        make_gpu_graph(types.num_nodes, edges, types.sampling, options, {copies, node_times});
    sampler_ = make_gpu_sampler(placed, kDevice, kTimeoutSecs);
  }

  SampleSizes sample(const TypedSeeds& seeds, const BatchName& batch, EdgeIds edge_ids) override {
    return sampler_->sample(seeds, batch, edge_ids);
  }
  void copy_to(const SampleOutput& output) override { sampler_->copy_to(output); }
  void copy_edge_ids(int64_t* out) override { sampler_->copy_edge_ids(out); }
  intptr_t stream() const override { return sampler_->stream(); }

 private:
  void place(TensorView* array, bool is_near) {
    const std::span<const std::byte> bytes = array->as_bytes("array");
    if (is_near) {
      array->data = near_.emplace_back(std::make_unique<GpuBytes>(bytes))->data();
      return;
    }
    auto& block = far_.emplace_back(std::make_unique<PinnedBlock>(bytes.size()));
    if (!bytes.empty()) std::memcpy(block->data(), bytes.data(), bytes.size());
    array->data = block->data();
  }

  std::vector<std::unique_ptr<GpuBytes>> near_;
  std::vector<std::unique_ptr<PinnedBlock>> far_;
  std::unique_ptr<GpuSampler> sampler_;
};

}  // namespace lsm::testing
