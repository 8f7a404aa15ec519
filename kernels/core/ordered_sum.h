// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Prefix sums inside the kernel that makes the values and uses the sums. Scans of their own would
// be two more kernels, and a pass over memory between each. Warps take tiles of items in order,
// publish a tile's sum as soon as they know it, and look back at the tiles before (Merrill and
// Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). Unlike there, a tile
// is a warp's, because there is no shared memory in code that runs on the host too.
#pragma once

#include <cstdint>

#include "kernels/core/atomics.h"
#include "kernels/core/macros.h"

namespace lsm {

/// A functor over num_tiles(most items) warps. Items has
///   kTile: items of a warp, a multiple of 32;
///   count(): number of items, which an earlier kernel may have written;
///   value(i): called once per item, in any order; at least 0;
///   place(i, value, before): once per item; `before` is the sum of the values of [0, i);
///   end(total): once, with the sum of all.
/// No call may depend on another warp's.
template <class Items>
struct OrderedSum {
  Items items;
  uint64_t* state;  // [state_words(most items)] zero; of this launch alone

  static int64_t num_tiles(int64_t most_items) {
    return most_items > 0 ? (most_items + Items::kTile - 1) / Items::kTile : 1;
  }
  static int64_t state_words(int64_t most_items) { return 1 + num_tiles(most_items); }

  template <class Warp>
  LSM_HOST_DEVICE void operator()(const Warp& warp, int64_t) const {
    const int64_t tile = take_tile(warp);
    const int64_t count = items.count();
    const int64_t begin = tile * Items::kTile;
    if (begin >= count && tile > 0) return;
    constexpr int kSteps = Items::kTile / Warp::kLanes;
    typename Warp::template Var<int64_t> value[kSteps];
    typename Warp::template Var<int64_t> before[kSteps];
    warp.each([&](int lane) {
      for (int step = 0; step < kSteps; ++step) {
        const int64_t i = begin + step * Warp::kLanes + lane;
        value[step][lane] = i < count ? items.value(i) : 0;
        before[step][lane] = value[step][lane];
      }
    });
    int64_t of_steps[kSteps];
    int64_t sum = 0;
    for (int step = 0; step < kSteps; ++step) {
      of_steps[step] = sum;
      sum += warp.sum_before(before[step]);
    }
    const int64_t earlier = look_back(warp, tile, sum);
    warp.each([&](int lane) {
      for (int step = 0; step < kSteps; ++step) {
        const int64_t i = begin + step * Warp::kLanes + lane;
        if (i >= count) break;
        items.place(i, value[step][lane], earlier + of_steps[step] + before[step][lane]);
      }
      if (lane == 0 && begin + Items::kTile >= count) items.end(earlier + sum);
    });
  }

 private:
  // Flags that a tile's word holds next to a sum: of the tile, or of all up to it.
  static constexpr uint64_t kOwn = uint64_t{1} << 62;
  static constexpr uint64_t kAll = uint64_t{1} << 63;

  /// By a counter, because warps start in any order: those of earlier tiles have started, and do
  /// not wait for later ones.
  template <class Warp>
  LSM_HOST_DEVICE int64_t take_tile(const Warp& warp) const {
    typename Warp::template Var<int32_t> taken;
    warp.each([&](int lane) {
      if (lane == 0) taken[lane] = static_cast<int32_t>(atomic_add(state, uint64_t{1}));
    });
    return warp.get(taken, 0);
  }

  /// Publishes the tile's sum. Returns the sum of all tiles before.
  template <class Warp>
  LSM_HOST_DEVICE int64_t look_back(const Warp& warp, int64_t tile, int64_t sum) const {
    uint64_t* const words = state + 1;
    warp.each([&](int lane) {
      if (lane == 0 && tile > 0) atomic_store(words + tile, kOwn | static_cast<uint64_t>(sum));
    });
    int64_t earlier = 0;
    int last = -1;  // lane that found the sum of all up to its tile
    for (int64_t near = tile - 1; near >= 0 && last < 0; near -= Warp::kLanes) {
      typename Warp::template Var<uint64_t> word;
      typename Warp::template Var<bool> is_all;
      typename Warp::template Var<int64_t> part;
      warp.each([&](int lane) {
        word[lane] = near >= lane ? atomic_await(words + near - lane) : kAll;
        is_all[lane] = (word[lane] & kAll) != 0;
      });
      last = warp.first(is_all);
      warp.each([&](int lane) {
        part[lane] = last < 0 || lane <= last ? static_cast<int64_t>(word[lane] & (kOwn - 1)) : 0;
      });
      earlier += warp.sum_before(part);
    }
    warp.each([&](int lane) {
      if (lane == 0) atomic_store(words + tile, kAll | static_cast<uint64_t>(earlier + sum));
    });
    return earlier;
  }
};

}  // namespace lsm
