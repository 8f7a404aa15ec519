// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The request lists of one iteration. A requester's list is cut into one for each owner; an owner
// merges the lists of all requesters. Integers only.
#pragma once

#include <cstdint>
#include <span>

#include "comm/owner.h"
#include "kernels/core/thread_pool.h"

namespace lsm::comm {

/// A request list by owner. Owner r's part is [starts[r], starts[r + 1]), in request order:
/// ids[k] is at positions[k] of the request.
struct Buckets {
  std::span<int64_t> ids;        // [n]
  std::span<int32_t> positions;  // [n]: the inverse permutation
  std::span<int64_t> starts;     // [num_ranks + 1]
};

/// Cuts `ids`, fewer than 2^31, into `out`, whatever the number of threads. Throws ArgumentError
/// for an id out of range.
void bucket_by_owner(std::span<const int64_t> ids, const OwnerMap& owners, const Buckets& out,
                     ThreadPool& pool);

/// The requests to an owner at one iteration, each id once.
struct MergedLists {
  std::span<int64_t> ids;          // room for the lengths of all lists + 1
  std::span<int32_t> row_of;       // per request of all lists: its index in ids
  std::span<int64_t> rank_starts;  // [num_lists + 1]: starts of each list's additions to ids
};

/// Merges `lists` in rank order: rank 0's list, then the additions of rank 1, and so on. Returns
/// the number of distinct ids. Precondition: `out` has the sizes that it names.
int64_t merge_lists(std::span<const std::span<const int64_t>> lists, const MergedLists& out);

}  // namespace lsm::comm
