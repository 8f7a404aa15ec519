// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Moves rows from storage to the GPU by its copy engines, in place of the kernel that gathers a
// batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/plan_moves.h"

namespace lsm {

/// The path of rows from page-locked memory to a batch.
enum class Staging : uint8_t {
  kGather,  // by the kernel that gathers the batch, which reads only needed bytes over PCIe
  kCopy,    // by copies of whole runs, which use PCIe best; they also move unrequested rows between
            // rows that are near each other
};

/// Calls copy(first, from, count) for runs of rows that lie in a batch as they do in staging: rows
/// `from`, from + 1, .. are those of positions first, first + 1, ... All rows of storage are in a
/// run. Runs may include other rows, up to kMaxGapBytes between two, which must be written
/// afterwards.
/// source: by position; a row of storage is number row_of(i) of staging.
template <class RowOf, class Copy>
void for_each_staged_run(std::span<const uint8_t> source, const RowOf& row_of, int64_t row_bytes,
                         const Copy& copy) {
  // Bytes that PCIe moves in about the time of starting another copy.
  constexpr int64_t kMaxGapBytes = 64 << 10;
  int64_t first = 0;
  int64_t end = 0;  // no run yet
  for (int64_t i = 0; i < static_cast<int64_t>(source.size()); ++i) {
    if (source[i] != static_cast<uint8_t>(RowSource::kStorage)) continue;
    const bool goes_on = end > first && row_of(i) - i == row_of(first) - first &&
                         (i - end) * row_bytes <= kMaxGapBytes;
    if (!goes_on) {
      if (end > first) copy(first, row_of(first), end - first);
      first = i;
    }
    end = i + 1;
  }
  if (end > first) copy(first, row_of(first), end - first);
}

}  // namespace lsm
