// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// LABOR for one node per warp: the lanes draw for 32 neighbours at a time. Few of these enter the
// heap of the smallest, so a single lane maintains it.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/sample/bounded_heap.h"
#include "kernels/sample/labor.h"
#include "kernels/sample/sampler_functors.h"

namespace lsm::device_sample {

/// Chooses positions for the nodes that do not take all their edges: those with the smallest draws,
/// in ascending order. There may be fewer nodes than warps.
template <class Id>
struct ChooseNodes {
  const Id* indices;
  Expanded nodes;
  SourceDraws draws;
  uint64_t* heaps;      // by edge of the hop: draw and position
  uint32_t* positions;  // by edge of the hop

  template <class Warp>
  LSM_HOST_DEVICE void operator()(const Warp& warp, int64_t i) const {
    if (i >= nodes.count()) return;
    const uint32_t count = static_cast<uint32_t>(nodes.num_drawn(i));
    const uint32_t degree = nodes.degree[i];
    if (count == degree || count == 0) return;
    uint64_t* const heap = heaps + nodes.offset[i];
    uint32_t size = 0;
    for (uint64_t begin = 0; begin < degree; begin += Warp::kLanes) {
      size = offer(warp, i, begin, heap, size);
    }
    warp.each([&](int lane) {
      if (lane != 0) return;
      uint32_t* const chosen = positions + nodes.offset[i];
      for (uint32_t k = 0; k < count; ++k) chosen[k] = static_cast<uint32_t>(heap[k]);
      heap_sort(chosen, count);
    });
  }

 private:
  /// Adds the neighbours from `begin` on, one per lane, that belong in the heap. Returns its size.
  template <class Warp>
  LSM_HOST_DEVICE uint32_t offer(const Warp& warp, int64_t i, uint64_t begin, uint64_t* heap,
                                 uint32_t size) const {
    const uint32_t count = static_cast<uint32_t>(nodes.num_drawn(i));
    const uint32_t degree = nodes.degree[i];
    const Id* const sources = indices + nodes.first[i];
    typename Warp::template Var<uint64_t> offered;
    warp.each([&](int lane) {
      const uint64_t position = begin + static_cast<uint64_t>(lane);
      offered[lane] =
          position >= degree
              ? UINT64_MAX
              : uint64_t{draws(static_cast<uint64_t>(sources[position]))} << 32 | position;
    });
    for (;;) {
      const uint64_t least = warp.min(offered);
      if (least == UINT64_MAX || (size == count && least > heap[0])) return size;
      warp.each([&](int lane) {
        if (offered[lane] == least) offered[lane] = UINT64_MAX;
        if (lane == 0) push_bounded(heap, size, count, least);
      });
      size += size < count;
    }
  }
};

}  // namespace lsm::device_sample
