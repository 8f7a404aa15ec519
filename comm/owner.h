// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Owners of nodes. The owner of a node caches its row and reads it from storage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/core/hash.h"
#include "kernels/core/macros.h"

namespace lsm::comm {

inline constexpr int64_t kMaxRanks = 256;

enum class OwnerHash : uint8_t { kStride, kMix64, kTable };

/// Mixes twice, with another constant than the single round that gives the set. Otherwise a rank's
/// ids would reach only some of its sets where the numbers of sets and ranks share a factor.
LSM_HOST_DEVICE constexpr uint64_t owner_hash(uint64_t id) {
  return mix64(mix64(id) ^ 0x9E3779B97F4A7C15ULL);
}

/// The owner of an id as a function: trivially copyable, valid for as long as its OwnerMap.
struct OwnerRef {
  OwnerHash hash = OwnerHash::kStride;
  uint32_t num_ranks = 1;
  uint32_t self = 0;
  const uint8_t* table = nullptr;        // kTable: per node
  const uint64_t* replicated = nullptr;  // a bit per node that belongs to every rank, or null

  LSM_HOST_DEVICE uint32_t operator()(int64_t id) const {
    const auto node = static_cast<uint64_t>(id);
    if (replicated && (replicated[node >> 6] >> (node & 63) & 1)) return self;
    if (hash == OwnerHash::kTable) return table[node];
    const uint64_t mixed = hash == OwnerHash::kMix64 ? owner_hash(node) : node;
    return static_cast<uint32_t>(mixed % num_ranks);
  }
};

/// Owns the memory behind an OwnerRef.
class OwnerMap {
 public:
  struct Config {
    OwnerHash hash = OwnerHash::kStride;
    int64_t num_nodes = 0;
    int64_t num_ranks = 1;
    int64_t rank = 0;
  };

  /// table: the owner of each node, for kTable only; not copied. replicated_ids: ids, repeats
  /// allowed, that every rank owns itself. Throws ArgumentError for values out of range.
  OwnerMap(const Config& config, std::span<const uint8_t> table,
           std::span<const int64_t> replicated_ids);

  OwnerRef ref() const;
  int64_t num_nodes() const { return config_.num_nodes; }
  int64_t num_ranks() const { return config_.num_ranks; }

 private:
  Config config_;
  std::span<const uint8_t> table_;
  std::vector<uint64_t> replicated_;
};

}  // namespace lsm::comm
