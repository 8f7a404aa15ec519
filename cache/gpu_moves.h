// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lsm {

/// The moves of one plan, in the memory of the GPU that decided them. A GpuExecutor replays them
/// before the host has seen them. Entries are rows that asked for a line: sets ascending,
/// within a set in request order.
class GpuMoves {
 public:
  virtual ~GpuMoves() = default;

  /// The same on the host.
  struct Listed {
    std::vector<int64_t> ids;             // [n] requests, in order
    std::vector<int64_t> slot;            // [n] by position: of the tier, or -1 for storage
    std::vector<uint32_t> miss_position;  // [misses] of the rows from storage
    std::vector<uint32_t> position;       // [k] of the row that asked
    std::vector<int64_t> line;            // [k] that it got, or -1
    std::vector<uint8_t> evicts;          // [k] whether another row leaves that line
    std::vector<int64_t> leaving_slot;  // [k] of the row that leaves, or [0]; -1: dropped, or none
  };
  /// Copies them to the host. Blocks. Precondition: they were not replayed.
  virtual Listed list() const = 0;
};

}  // namespace lsm
