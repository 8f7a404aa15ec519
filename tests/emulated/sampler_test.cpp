// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Samples of topology in GPU memory and in page-locked memory, as the host draws them.
#include <doctest/doctest.h>

#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

/// A sampler, and the topology that it reads.
class PlacedSampler final : public GpuSampler {
 public:
  PlacedSampler(const SampledTypes& types, const Sampling& sampling, bool is_near,
                bool has_wide_ids) {
    GpuGraph placed{types.num_nodes, {}, has_wide_ids};
    for (const auto& [graph, source, destination, fanouts] : types.edges) {
      const std::vector<int64_t> wide(graph.indices.begin(), graph.indices.end());
      const auto indices = has_wide_ids ? bytes_of(wide) : bytes_of(graph.indices);
      placed.edges.push_back(
          {reinterpret_cast<const int64_t*>(place(bytes_of(graph.indptr), is_near)),
           place(indices, is_near), fanouts, source, destination});
    }
    sampler_ = make_gpu_sampler(placed, sampling, kDevice, kTimeoutSecs);
  }

  SampleSizes sample(std::span<const int64_t> seeds, const BatchName& batch,
                     EdgeIds edge_ids) override {
    return sampler_->sample(seeds, batch, edge_ids);
  }
  void copy_to(const SampleOutput& output) override { sampler_->copy_to(output); }
  void copy_edge_ids(int64_t* out) override { sampler_->copy_edge_ids(out); }

 private:
  const std::byte* place(std::span<const std::byte> bytes, bool is_near) {
    if (is_near) return near_.emplace_back(std::make_unique<GpuBytes>(bytes))->data();
    auto& block = far_.emplace_back(std::make_unique<PinnedBlock>(bytes.size()));
    if (!bytes.empty()) std::memcpy(block->data(), bytes.data(), bytes.size());
    return block->data();
  }

  std::vector<std::unique_ptr<GpuBytes>> near_;
  std::vector<std::unique_ptr<PinnedBlock>> far_;
  std::unique_ptr<GpuSampler> sampler_;
};

TEST_CASE("GPU sampler") {
  check_samples([](const SampledTypes& types, const Sampling& sampling) {
    std::vector<std::unique_ptr<GpuSampler>> samplers;
    for (const bool is_near : {false, true}) {
      if (is_part() && is_near) break;
      samplers.push_back(std::make_unique<PlacedSampler>(types, sampling, is_near, is_near));
    }
    return samplers;
  });
}

}  // namespace

}  // namespace lsm::testing
