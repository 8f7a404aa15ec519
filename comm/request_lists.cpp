// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/request_lists.h"

#include <algorithm>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/gather/gather.h"
#include "kernels/sample/unique.h"

namespace lsm::comm {
namespace {

constexpr int64_t kGrain = 1 << 14;

}  // namespace

void bucket_by_owner(std::span<const int64_t> ids, const OwnerMap& owners, const Buckets& out,
                     ThreadPool& pool) {
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t num_ranks = owners.num_ranks();
  check_argument(count < (int64_t{1} << 31), "ids: expected fewer than 2^31, got ", count);
  check_ids("ids", ids, owners.num_nodes());
  const OwnerRef owner_of = owners.ref();
  // Pieces of the request are counted and then written, so that the order does not depend on the
  // threads.
  const int64_t num_pieces = (count + kGrain - 1) / kGrain;
  std::vector<uint8_t> owner(ids.size());
  std::vector<int64_t> next(static_cast<size_t>(num_pieces * num_ranks));
  const auto for_each_piece = [&](const auto& body) {
    pool.parallel_for(num_pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        body(piece * kGrain, std::min(count, (piece + 1) * kGrain), &next[piece * num_ranks]);
      }
    });
  };
  for_each_piece([&](int64_t begin, int64_t end, int64_t* counts) {
    for (int64_t i = begin; i < end; ++i) {
      owner[i] = static_cast<uint8_t>(owner_of(ids[i]));
      ++counts[owner[i]];
    }
  });
  int64_t start = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    out.starts[rank] = start;
    for (int64_t piece = 0; piece < num_pieces; ++piece) {
      const int64_t size = next[piece * num_ranks + rank];
      next[piece * num_ranks + rank] = start;
      start += size;
    }
  }
  out.starts[num_ranks] = start;
  for_each_piece([&](int64_t begin, int64_t end, int64_t* targets) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t target = targets[owner[i]]++;
      out.ids[target] = ids[i];
      out.positions[target] = static_cast<int32_t>(i);
    }
  });
}

int64_t merge_lists(std::span<const std::span<const int64_t>> lists, const MergedLists& out) {
  // Kept between calls (one per iteration): new memory would cost as much as the merging.
  static thread_local IdTable<int64_t> table;
  table.reset(-1);
  table.reserve(static_cast<int64_t>(out.row_of.size()), out.ids.data());
  std::vector<int64_t> rows(table.kWindow);
  auto row_of = out.row_of.begin();
  for (size_t list = 0; list < lists.size(); ++list) {
    out.rank_starts[list] = table.size();
    for (size_t begin = 0; begin < lists[list].size(); begin += rows.size()) {
      const auto window =
          lists[list].subspan(begin, std::min(rows.size(), lists[list].size() - begin));
      table.prefetch(window);
      table.relabel(window, rows.data(), out.ids.data());
      row_of = std::copy_n(rows.begin(), window.size(), row_of);
    }
  }
  out.rank_starts.back() = table.size();
  return table.size();
}

}  // namespace lsm::comm
