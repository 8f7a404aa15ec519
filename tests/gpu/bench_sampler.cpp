// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/sample/sampler.h"
#include "tests/emulated/tests.h"
#include "tests/gpu/bench.h"
#include "tests/gpu/figures.h"

namespace lsm::testing {
namespace {

const std::vector<int64_t> kFanouts = {10, 5};

SampledGraph draw_graph(const BenchSizes& sizes) {
  Random random(51);
  SampledGraph graph{{0}, {}};
  const int64_t mean = sizes.edges / sizes.nodes;
  graph.indices.reserve(static_cast<size_t>(sizes.edges + sizes.nodes));
  for (int64_t node = 0; node < sizes.nodes; ++node) {
    const int64_t degree = random.between(0, 2 * mean);
    for (int64_t i = 0; i < degree; ++i) {
      graph.indices.push_back(static_cast<int32_t>(random.between(0, sizes.nodes - 1)));
    }
    graph.indptr.push_back(std::ssize(graph.indices));
  }
  return graph;
}

/// Runs sample(lane, b) for all batches b on `lanes` threads. Rethrows the first error.
void for_batches(int lanes, int batches, const std::function<void(int, int)>& sample) {
  std::atomic<int> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int lane = 0; lane < lanes; ++lane) {
    threads.emplace_back([&, lane] {
      try {
        for (int b = next++; b < batches; b = next++) sample(lane, b);
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

class Samples {
 public:
  explicit Samples(const BenchSizes& sizes)
      : sizes_(sizes),
        graph_(draw_graph(sizes)),
        near_indptr_(bytes_of(graph_.indptr)),
        near_indices_(bytes_of(graph_.indices)),
        far_indptr_(bytes_of(graph_.indptr).size()),
        far_indices_(bytes_of(graph_.indices).size()) {
    std::ranges::copy(bytes_of(graph_.indptr), far_indptr_.data());
    std::ranges::copy(bytes_of(graph_.indices), far_indices_.data());
    Random random(52);
    for (int b = 0; b < sizes.batches; ++b) {
      std::vector<int64_t> seeds;
      while (std::ssize(seeds) < sizes.seeds) {
        const int64_t stride = sizes.nodes / sizes.seeds, i = std::ssize(seeds);
        seeds.push_back(i * stride + random.between(0, stride - 1));
      }
      seeds_.push_back(std::move(seeds));
    }
  }

  void run() {
    const auto host =
        make_neighbor_sampler(view_of(graph_.indptr), view_of(graph_.indices), kFanouts, 1, {});
    edges_.resize(static_cast<size_t>(sizes_.batches));
    const double on_host = measure("host", sizes_.threads, 0, [&](int, int b) {
      edges_[b] = host->sample(seeds_[b], name_of(b), EdgeIds::kLeaveOut).num_edges;
    });
    for (const bool is_near : {true, false}) {
      for (const int lanes : {1, sizes_.samplers}) run_on_gpu(is_near, lanes, on_host);
    }
  }

 private:
  static BatchName name_of(int b) { return {7, 0, static_cast<uint64_t>(b), 0}; }

  void run_on_gpu(bool is_near, int lanes, double on_host) {
    const int64_t num_nodes = graph_.num_nodes();
    const Graph<int32_t> near{near_indptr_.as<int64_t>(), near_indices_.as<int32_t>(), num_nodes,
                              num_nodes};
    const Graph<int32_t> far{reinterpret_cast<const int64_t*>(far_indptr_.data()),
                             reinterpret_cast<const int32_t*>(far_indices_.data()), num_nodes,
                             num_nodes};
    const GpuGraph placed{{num_nodes},
                          std::vector{EdgeType<int32_t>{is_near ? near : far, 0, 0, kFanouts}}};
    std::vector<std::unique_ptr<GpuSampler>> samplers;
    for (int lane = 0; lane < lanes; ++lane) {
      samplers.push_back(make_gpu_sampler(placed, kDevice, kTimeoutSecs));
    }
    measure(is_near ? "GPU memory" : "page-locked memory", lanes, on_host, [&](int lane, int b) {
      const SampleSizes got =
          samplers[lane]->sample({0, seeds_[b], {}}, name_of(b), EdgeIds::kLeaveOut);
      LSM_EXPECT(got.num_edges == edges_[b], got.num_edges, " edges, not ", edges_[b]);
    });
  }

  double measure(const char* variant, int lanes, double on_host,
                 const std::function<void(int, int)>& sample) {
    const auto seconds =
        seconds_on_host(sizes_.repeats, [&](int) { for_batches(lanes, sizes_.batches, sample); });
    double edges = 0;
    for (const int64_t count : edges_) edges += static_cast<double>(count);
    return print({.name = "sampler",
                  .sizes = {{"seeds", sizes_.seeds}, {"at_a_time", lanes}},
                  .variant = variant,
                  .unit = "edges/s",
                  .values = rates(edges, seconds),
                  .beside = on_host,
                  .beside_what = "the sampler of the host"});
  }

  const BenchSizes sizes_;
  const SampledGraph graph_;
  const GpuBytes near_indptr_, near_indices_;
  const PinnedBlock far_indptr_, far_indices_;
  std::vector<std::vector<int64_t>> seeds_;
  std::vector<int64_t> edges_;
};

}  // namespace

void bench_sampler(const BenchSizes& sizes) {
  Samples(sizes).run();
}

BenchSizes BenchSizes::tiny() {
  return {.repeats = 3,
          .table_bytes = 64 << 10,
          .far_bytes = 64 << 10,
          .batch_bytes = 16 << 10,
          .tier_bytes = 16 << 10,
          .lines = 64,
          .ids = 40,
          .nodes = 400,
          .edges = 2000,
          .seeds = 8,
          .batches = 3,
          .threads = 2,
          .samplers = 2};
}

}  // namespace lsm::testing
