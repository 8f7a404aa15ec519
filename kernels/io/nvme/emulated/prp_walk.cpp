// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/emulated/prp_walk.h"

#include <algorithm>
#include <utility>

namespace lsm::nvme {
namespace {

void append(std::vector<Segment>& segments, std::byte* memory, size_t bytes) {
  if (!segments.empty() && segments.back().data + segments.back().bytes == memory) {
    segments.back().bytes += bytes;
  } else {
    segments.push_back({memory, bytes});
  }
}

/// A PRP entry that is neither the first nor a pointer to a list: offset 0.
uint16_t append_page(const DmaSpace& space, uint64_t prp, uint64_t* left,
                     std::vector<Segment>& segments) {
  if (prp % kPageBytes != 0) return kPrpOffsetInvalid;
  std::byte* const memory = space.translate(prp);
  if (memory == nullptr) return kDataTransferError;
  const auto bytes = std::min<uint64_t>(kPageBytes, *left);
  append(segments, memory, bytes);
  *left -= bytes;
  return kSuccess;
}

uint16_t walk_list(const DmaSpace& space, uint64_t list, uint64_t left,
                   std::vector<Segment>& segments) {
  bool met_empty_page = false;
  while (left > 0) {
    // The pointer to a list may have an offset, and the list ends with its page.
    if (list % 8 != 0) return kPrpOffsetInvalid;
    const auto* entry = reinterpret_cast<const uint64_t*>(space.translate(list));
    if (entry == nullptr) return kDataTransferError;
    uint64_t entries = (kPageBytes - list % kPageBytes) / 8;
    const uint64_t pages_left = (left + kPageBytes - 1) / kPageBytes;
    const bool chained = pages_left > entries;
    if (chained) --entries;
    for (uint64_t i = 0; i < entries && left > 0; ++i) {
      const uint16_t status = append_page(space, entry[i], &left, segments);
      if (status != kSuccess) return status;
    }
    if (!chained) continue;
    // Lists with only a pointer to the next could form an endless cycle.
    if (entries == 0 && std::exchange(met_empty_page, true)) return kPrpOffsetInvalid;
    list = entry[entries];
  }
  return kSuccess;
}

}  // namespace

uint16_t walk_prps(const DmaSpace& space, const DataPointer& data, uint64_t bytes,
                   std::vector<Segment>& segments) {
  segments.clear();
  if (data.prp1 % 4 != 0) return kPrpOffsetInvalid;
  std::byte* const memory = space.translate(data.prp1);
  if (memory == nullptr) return kDataTransferError;
  const uint64_t first = std::min<uint64_t>(bytes, kPageBytes - data.prp1 % kPageBytes);
  append(segments, memory, first);
  uint64_t left = bytes - first;
  if (left == 0) return kSuccess;
  if (left <= kPageBytes) return append_page(space, data.prp2, &left, segments);
  return walk_list(space, data.prp2, left, segments);
}

}  // namespace lsm::nvme
