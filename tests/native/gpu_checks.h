// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Checks of GPU code against the host: for its twins, and for the emulated GPU.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/gpu_executor.h"
#include "cache/gpu_set_cache.h"
#include "kernels/sample/gpu_sampler.h"
#include "tests/native/planner_cases.h"

namespace lsm::testing {

/// Nodes of the planners' cases.
inline constexpr int64_t kNumNodes = 300;

/// Memory that the code which is checked reads and writes.
class CheckedMemory {
 public:
  virtual ~CheckedMemory() = default;
  /// The memory that rows are delivered to.
  virtual std::byte* rows(size_t bytes) = 0;
  /// Host memory that it reads, as long as this lives.
  virtual std::byte* staging(std::span<const std::byte> contents) = 0;
  /// Its own memory, the same.
  virtual std::byte* resident(std::span<const std::byte> contents) = 0;
  /// The contents of rows().
  virtual std::vector<std::byte> fetch(const std::byte* rows, size_t bytes) = 0;
};

/// Plans of `planned` with these sets are the host's.
void check_plans(const PlannerCase& planned, std::unique_ptr<cache::GpuSetCache> sets);

struct CheckedExecutor {
  std::unique_ptr<GpuExecutor> executor;
  std::unique_ptr<CheckedMemory> memory;               // null: any
  std::unique_ptr<cache::GpuSetCache> sets = nullptr;  // that plan where it replays; null: the host
};
using MakeExecutor =
    std::function<CheckedExecutor(const GpuExecutorOptions&, Storage&, const PlannerCase&)>;

/// Plans of several policies are replayed in both ways, with rows staged in all ways and with
/// prefetching: each row that arrives is that of the files. Some plans are made when an earlier one
/// is replayed.
void check_rows_of_plans(int64_t row_bytes, const MakeExecutor& make);
/// Those of one planner, whose rows are in `files`.
void check_rows(const PlannerCase& planned, int64_t prefetch_rows, RowFiles& files,
                const MakeExecutor& make);

/// Random edges in CSC form.
struct SampledGraph {
  std::vector<int64_t> indptr;
  std::vector<int32_t> indices;
  int64_t num_nodes() const { return static_cast<int64_t>(indptr.size()) - 1; }
};

/// A random graph with types, whose seeds are of type 0, how many edges a batch takes, and how.
struct SampledTypes {
  struct Edges {
    SampledGraph graph;
    int source, destination;
    std::vector<int64_t> fanouts;
    std::vector<int64_t> times = {};  // of edges, or none
    std::vector<float> weights = {};  // of edges, or none
  };
  std::vector<int64_t> num_nodes;
  std::vector<Edges> edges;
  Sampling sampling = {};
  bool disjoint = false;
  bool takes_last = false;
  std::vector<std::vector<int64_t>> node_times = {};  // by type, or none
};
/// True if lanes that are fibers would meet a million times in its samples.
inline bool is_large(const SampledTypes& types) {
  return types.num_nodes.front() > 500;
}
/// The arrays and options for a host's sampler. Precondition: `types` outlives them.
std::vector<TypedEdges> edges_of(const SampledTypes& types);
TypedOptions options_of(const SampledTypes& types);

using MakeSamplers = std::function<std::vector<std::unique_ptr<GpuSampler>>(const SampledTypes&)>;

/// A sample is that of the host's sampler.
void check_sample(TypedSampler& host, GpuSampler& sampler, const TypedSeeds& seeds,
                  const BatchName& name);
/// Samples of all kinds are.
void check_samples(const MakeSamplers& make);

}  // namespace lsm::testing
