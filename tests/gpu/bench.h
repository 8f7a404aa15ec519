// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The native bench of GPU code. Inputs are random, larger than caches, and rotate over repeats.
#pragma once

#include <cstdint>
#include <vector>

namespace lsm::testing {

/// Sizes for a GPU with 40 GB of memory or more.
struct BenchSizes {
  int repeats = 20;
  int64_t table_bytes = int64_t{4} << 30;    // rows in GPU memory
  int64_t far_bytes = int64_t{1} << 30;      // rows in page-locked memory
  int64_t batch_bytes = int64_t{512} << 20;  // of a gather
  int64_t tier_bytes = int64_t{64} << 20;    // of a replayed batch, and of each tier
  int64_t lines = 1 << 20;                   // of the planner's cache
  int64_t ids = 100'000;                     // of a list that is planned
  int64_t nodes = 10'000'000;
  int64_t edges = 120'000'000;
  int64_t seeds = 1024;
  int batches = 16;  // that one measurement of the sampler samples
  int threads = 16;  // of the host
  int samplers = 8;  // at the same time

  /// For the emulated GPU: all code runs, and the figures mean nothing.
  static BenchSizes tiny();
};

inline const std::vector<int64_t> kRowBytes = {256, 512, 1024, 2048, 4096};

/// Rows of GPU memory and of page-locked memory, against copies of as many bytes.
void bench_gathers(const BenchSizes& sizes);
/// Batches of an executor, all of whose rows one tier has, against the same copies. The time is
/// that of a replay, with the host's check and upload of the plan.
void bench_tiers(const BenchSizes& sizes);
/// Ids that are pushed and planned per second, with the victim buffer and without, on both sides.
void bench_planner(const BenchSizes& sizes);
/// Edges that are sampled per second: of topology in both memories, and by the host.
void bench_sampler(const BenchSizes& sizes);

}  // namespace lsm::testing
