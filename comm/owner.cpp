// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/owner.h"

#include <algorithm>

#include "kernels/core/check.h"
#include "kernels/gather/gather.h"

namespace lsm::comm {

OwnerMap::OwnerMap(const Config& config, std::span<const uint8_t> table,
                   std::span<const int64_t> replicated_ids)
    : config_(config), table_(table) {
  check_argument(config.num_nodes >= 0, "num_nodes: expected at least 0, got ", config.num_nodes);
  check_argument(config.num_ranks >= 1 && config.num_ranks <= kMaxRanks,
                 "world size: expected 1 to ", kMaxRanks, " ranks, got ", config.num_ranks);
  check_argument(config.rank >= 0 && config.rank < config.num_ranks, "rank: expected 0 to ",
                 config.num_ranks - 1, ", got ", config.rank);
  if (config.hash == OwnerHash::kTable) {
    check_argument(static_cast<int64_t>(table.size()) == config.num_nodes,
                   "owner table: expected one entry for each of ", config.num_nodes, " nodes, got ",
                   table.size());
    const auto bad = std::find_if(table.begin(), table.end(),
                                  [&](uint8_t owner) { return owner >= config.num_ranks; });
    check_argument(bad == table.end(), "owner table: expected owners 0 to ", config.num_ranks - 1,
                   ", got ", bad == table.end() ? 0 : int{*bad}, " for node ", bad - table.begin());
  }
  if (replicated_ids.empty()) return;
  check_ids("replicated_ids", replicated_ids, config.num_nodes);
  replicated_.resize(static_cast<size_t>(config.num_nodes + 63) / 64);
  for (const int64_t id : replicated_ids) replicated_[id >> 6] |= uint64_t{1} << (id & 63);
}

OwnerRef OwnerMap::ref() const {
  return {config_.hash, static_cast<uint32_t>(config_.num_ranks),
          static_cast<uint32_t>(config_.rank), table_.empty() ? nullptr : table_.data(),
          replicated_.empty() ? nullptr : replicated_.data()};
}

}  // namespace lsm::comm
