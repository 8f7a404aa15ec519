// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Choices by weight for one node per warp: the lanes take 32 edges at a time. Few of these enter
// the heap of the earliest, so a single lane maintains it.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/core/macros.h"
#include "kernels/core/philox.h"
#include "kernels/sample/arrival.h"
#include "kernels/sample/bounded_heap.h"
#include "kernels/sample/sampler_functors.h"

namespace lsm::device_sample {

/// An edge by its arrival; of equal ones the first is the earlier.
struct Arrival {
  uint64_t time;  // the bits of a double >= 0, which rise with it
  uint32_t position;

  LSM_HOST_DEVICE bool operator<(const Arrival& other) const {
    return time != other.time ? time < other.time : position < other.position;
  }
  LSM_HOST_DEVICE bool operator>(const Arrival& other) const { return other < *this; }
  LSM_HOST_DEVICE bool operator<=(const Arrival& other) const { return !(other < *this); }
};

/// Chooses positions for the nodes that do not take all their edges, as WeightedChoice does. There
/// may be fewer nodes than warps.
struct ChooseByWeight {
  const float* weights;  // by edge of the graph
  Expanded nodes;
  uint64_t key;
  uint32_t hop;
  Arrival* heaps;       // by edge of the hop
  uint32_t* positions;  // by edge of the hop

  template <class Warp>
  LSM_HOST_DEVICE void operator()(const Warp& warp, int64_t i) const {
    if (i >= nodes.count()) return;
    const uint32_t count = static_cast<uint32_t>(nodes.num_drawn(i));
    const uint32_t degree = nodes.degree[i];
    if (count == degree || count == 0) return;
    Arrival* const heap = heaps + nodes.offset[i];
    uint32_t size = 0;
    for (uint64_t begin = 0; begin < degree; begin += Warp::kLanes) {
      size = offer(warp, i, begin, heap, size);
    }
    warp.each([&](int lane) {
      if (lane != 0) return;
      uint32_t* const chosen = positions + nodes.offset[i];
      for (uint32_t k = 0; k < count; ++k) chosen[k] = heap[k].position;
      heap_sort(chosen, count);
    });
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  /// The arrival of an edge of node i; kNone: it never does.
  LSM_HOST_DEVICE uint64_t time_of(int64_t i, uint64_t position) const {
    const float weight = weights[nodes.first[i] + static_cast<int64_t>(position)];
    if (!(weight > 0)) return kNone;
    const uint64_t id = static_cast<uint64_t>(nodes.batch.n_id[nodes.begin() + i]);
    const double time = arrival(word_of(id, static_cast<uint32_t>(position)), weight);
    uint64_t bits = 0;
    std::memcpy(&bits, &time, sizeof(bits));
    return bits;
  }

  /// Word `position` of the node's PhiloxStream.
  LSM_HOST_DEVICE uint32_t word_of(uint64_t id, uint32_t position) const {
    const Philox4x32 block = philox4x32(
        {{static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), hop, position / 4}}, key);
    const uint32_t low = position % 2 == 0 ? block.word[0] : block.word[1];
    const uint32_t high = position % 2 == 0 ? block.word[2] : block.word[3];
    return position % 4 < 2 ? low : high;
  }

  /// Adds the edges from `begin` on, one per lane, that belong in the heap. Returns its size.
  template <class Warp>
  LSM_HOST_DEVICE uint32_t offer(const Warp& warp, int64_t i, uint64_t begin, Arrival* heap,
                                 uint32_t size) const {
    const uint32_t count = static_cast<uint32_t>(nodes.num_drawn(i));
    typename Warp::template Var<uint64_t> offered;
    typename Warp::template Var<bool> is_least;
    warp.each([&](int lane) {
      const uint64_t position = begin + static_cast<uint64_t>(lane);
      offered[lane] = position < nodes.degree[i] ? time_of(i, position) : kNone;
    });
    for (;;) {
      const uint64_t least = warp.min(offered);
      // Of equal arrivals those in the heap are the first.
      if (least == kNone || (size == count && least >= heap[0].time)) return size;
      warp.each([&](int lane) { is_least[lane] = offered[lane] == least; });
      const int first = warp.first(is_least);
      warp.each([&](int lane) {
        if (lane == first) offered[lane] = kNone;
        if (lane != 0) return;
        push_bounded(heap, size, count, Arrival{least, static_cast<uint32_t>(begin) + first});
      });
      size += size < count;
    }
  }
};

}  // namespace lsm::device_sample
