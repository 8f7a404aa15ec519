// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Choices of in-edges for one node per warp: the lanes take 32 edges at a time. Few of these enter
// the heap of the first, so a single lane maintains it.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/core/macros.h"
#include "kernels/core/philox.h"
#include "kernels/sample/arrival.h"
#include "kernels/sample/bounded_heap.h"
#include "kernels/sample/labor.h"
#include "kernels/sample/sampler_functors.h"

namespace lsm::device_sample {

/// Edges of a node by LABOR's draws for their sources. Keys are distinct: draw and position.
template <class Id>
struct DrawOrder {
  using Entry = uint64_t;

  const Id* indices;
  SourceDraws draws;

  LSM_HOST_DEVICE uint64_t key_of(const Expanded& nodes, int64_t i, uint64_t position) const {
    const Id* const sources = indices + nodes.first[i];
    return uint64_t{draws(static_cast<uint64_t>(sources[position]))} << 32 | position;
  }
  LSM_HOST_DEVICE static Entry entry(uint64_t key, uint32_t) { return key; }
  LSM_HOST_DEVICE static uint64_t key(Entry entry) { return entry; }
  LSM_HOST_DEVICE static uint32_t position(Entry entry) { return static_cast<uint32_t>(entry); }
};

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

/// Edges of a node by their arrivals, as in WeightedChoice.
struct ArrivalOrder {
  using Entry = Arrival;

  const float* weights;  // by edge of the graph
  uint64_t key_of_batch;
  uint32_t hop;

  LSM_HOST_DEVICE uint64_t key_of(const Expanded& nodes, int64_t i, uint64_t position) const {
    const float weight = weights[nodes.first[i] + static_cast<int64_t>(position)];
    if (!(weight > 0)) return UINT64_MAX;  // it never arrives
    const uint64_t id = static_cast<uint64_t>(nodes.batch.n_id[nodes.begin() + i]);
    const double time = arrival(word_of(id, static_cast<uint32_t>(position)), weight);
    uint64_t bits = 0;
    std::memcpy(&bits, &time, sizeof(bits));
    return bits;
  }
  LSM_HOST_DEVICE static Entry entry(uint64_t key, uint32_t position) { return {key, position}; }
  LSM_HOST_DEVICE static uint64_t key(Entry entry) { return entry.time; }
  LSM_HOST_DEVICE static uint32_t position(Entry entry) { return entry.position; }

 private:
  /// Word `position` of the node's PhiloxStream.
  LSM_HOST_DEVICE uint32_t word_of(uint64_t id, uint32_t position) const {
    const Philox4x32 block = philox4x32(
        {{static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), hop, position / 4}},
        key_of_batch);
    const uint32_t low = position % 2 == 0 ? block.word[0] : block.word[1];
    const uint32_t high = position % 2 == 0 ? block.word[2] : block.word[3];
    return position % 4 < 2 ? low : high;
  }
};

/// Chooses positions for the nodes that do not take all their edges: those with the smallest keys
/// of an Order, of equal ones the first, in ascending order. An edge with the key UINT64_MAX is not
/// chosen. There may be fewer nodes than warps.
template <class Order>
struct ChooseFirst {
  using Entry = typename Order::Entry;

  Expanded nodes;
  Order order;
  Entry* heaps;         // by edge of the hop
  uint32_t* positions;  // by edge of the hop

  template <class Warp>
  LSM_HOST_DEVICE void operator()(const Warp& warp, int64_t i) const {
    if (i >= nodes.count()) return;
    const uint32_t count = static_cast<uint32_t>(nodes.num_drawn(i));
    const uint32_t degree = nodes.degree[i];
    if (count == degree || count == 0) return;
    Entry* const heap = heaps + nodes.offset[i];
    uint32_t size = 0;
    for (uint64_t begin = 0; begin < degree; begin += Warp::kLanes) {
      size = offer(warp, i, begin, heap, size);
    }
    warp.each([&](int lane) {
      if (lane != 0) return;
      uint32_t* const chosen = positions + nodes.offset[i];
      for (uint32_t k = 0; k < count; ++k) chosen[k] = Order::position(heap[k]);
      heap_sort(chosen, count);
    });
  }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  /// Adds the edges from `begin` on, one per lane, that belong in the heap. Returns its size.
  template <class Warp>
  LSM_HOST_DEVICE uint32_t offer(const Warp& warp, int64_t i, uint64_t begin, Entry* heap,
                                 uint32_t size) const {
    const uint32_t count = static_cast<uint32_t>(nodes.num_drawn(i));
    typename Warp::template Var<uint64_t> offered;
    typename Warp::template Var<bool> is_least;
    warp.each([&](int lane) {
      const uint64_t position = begin + static_cast<uint64_t>(lane);
      offered[lane] = position < nodes.degree[i] ? order.key_of(nodes, i, position) : kNone;
    });
    for (;;) {
      const uint64_t least = warp.min(offered);
      // Of equal keys those in the heap are the first.
      if (least == kNone || (size == count && least >= Order::key(heap[0]))) return size;
      warp.each([&](int lane) { is_least[lane] = offered[lane] == least; });
      const int first = warp.first(is_least);
      warp.each([&](int lane) {
        if (lane == first) offered[lane] = kNone;
        if (lane != 0) return;
        push_bounded(heap, size, count, Order::entry(least, static_cast<uint32_t>(begin) + first));
      });
      size += size < count;
    }
  }
};

}  // namespace lsm::device_sample
