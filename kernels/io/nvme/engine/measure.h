// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace lsm::nvme {

/// Options of measure_reads(): random reads of one size on one queue of an emulated controller, in
/// one of the two shapes of submission.
struct MeasureOptions {
  bool sparse = false;
  uint32_t depth = 1024;              // entries of the submission queue
  uint32_t completion_depth = 16384;  // entries of the completion queue
  uint32_t batch = 256;               // commands submitted at once; sparse: in groups of 32
  uint32_t read_bytes = 4096;
  uint64_t reads = 1'000'000;
  std::string file;  // the namespace; empty: `memory_bytes` of memory
  uint64_t memory_bytes = 64 << 20;
};

struct Measured {
  double seconds = 0;
  double submitter_cpu_secs = 0;  // CPU time of the thread that submits and completes
  double process_cpu_secs = 0;    // CPU time of that thread and the controller's
  uint64_t tail_writes = 0;
  uint64_t head_writes = 0;
};

/// Submits and completes the reads from the calling thread; another thread emulates the controller.
/// Over memory, compares every read's first bytes with those of its block. Throws
/// std::runtime_error if a read is wrong or fails.
Measured measure_reads(const MeasureOptions& options);

}  // namespace lsm::nvme
