// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lsm::nvme {

/// Options of measure_waves(): waves of random reads that a GPU submits and completes, on the
/// queues of one emulated controller over memory.
struct WaveOptions {
  int device = 0;
  std::vector<int> num_blocks = {1};  // thread blocks of the kernels, one measurement each
  uint32_t num_queues = 64;
  uint32_t depth = 1024;  // entries of each submission queue
  uint32_t num_reads = 32'768;
  uint32_t read_bytes = 4096;       // a multiple; from three pages on with PRP lists
  bool into_device_memory = false;  // else into page-locked host memory
  uint32_t rounds = 5;              // the median counts, after a warm-up round
};

struct WaveRates {
  int num_blocks;
  double split;        // reads per second: submit and complete as two kernels (Helios, 3.1)
  double synchronous;  // one kernel, whose warps wait for their reads (BaM)
};

/// Measures both for each of `num_blocks`, and compares every byte of every wave. Throws
/// std::runtime_error if a byte is wrong, a read fails, or there is no CUDA; TimeoutError if reads
/// do not complete; ArgumentError for inconsistent options.
std::vector<WaveRates> measure_waves(const WaveOptions& options);

}  // namespace lsm::nvme
