// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The coming uses in a whole trace, for offline bounds. Sized by the trace.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/id_map.h"
#include "cache/policy/line.h"
#include "cache/simulate.h"
#include "kernels/core/check.h"

namespace lsm::cache {

/// Numbers of the distinct ids of a trace, in first-seen order. Throws ArgumentError if an id is
/// negative or repeated in a batch.
inline IdMap number_ids(Batches batches) {
  size_t count = 0;
  for (const auto& batch : batches) count += batch.size();
  IdMap numbers;
  numbers.reset(static_cast<int64_t>(count));
  std::vector<size_t> last_batch;  // by number: 1 + the last batch that contains it
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const int64_t id : batches[b]) {
      check_argument(id >= 0, "ids: expected ids >= 0, got ", id, " in batch ", b);
      if (numbers.insert(id, numbers.size())) last_batch.push_back(0);
      size_t& last = last_batch[numbers.find(id)];
      check_argument(last != b + 1, "ids: expected distinct ids in batch ", b, ", got ", id,
                     " twice");
      last = b + 1;
    }
  }
  return numbers;
}

/// For each request of a trace, the next batch that contains its id.
inline std::vector<std::vector<uint32_t>> next_uses(Batches batches, const IdMap& numbers) {
  std::vector<uint32_t> next(numbers.size(), kNoNextUse);
  std::vector<std::vector<uint32_t>> uses(batches.size());
  for (size_t b = batches.size(); b-- > 0;) {
    uses[b].reserve(batches[b].size());
    for (const int64_t id : batches[b]) {
      uint32_t& later = next[numbers.find(id)];
      uses[b].push_back(later);
      later = static_cast<uint32_t>(b);
    }
  }
  return uses;
}

}  // namespace lsm::cache
