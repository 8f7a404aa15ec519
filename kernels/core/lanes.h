// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A warp as an argument, so that code for all its lanes is written once and tested on the host.
// Code that all lanes share is written as steps: each(body) calls body(lane) for every lane and
// ends when all are done and see each other's writes. Between steps everything is uniform: only
// Vars differ from lane to lane.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"

namespace lsm {

/// Emulates a warp: the lanes take their turns, in either order, so that a step which depends on
/// the order gives different results in tests.
template <int kNumLanes>
class HostLanes {
 public:
  static constexpr int kLanes = kNumLanes;

  /// A variable of which every lane has its own.
  template <class T>
  class Var {
   public:
    LSM_HOST_DEVICE T& operator[](int lane) { return values_[lane]; }
    LSM_HOST_DEVICE const T& operator[](int lane) const { return values_[lane]; }

   private:
    T values_[kLanes]{};
  };

  LSM_HOST_DEVICE explicit HostLanes(bool backwards = false) : backwards_(backwards) {}

  template <class Body>
  LSM_HOST_DEVICE void each(const Body& body) const {
    if constexpr (kLanes == 1) {
      body(0);
    } else {
      for (int i = 0; i < kLanes; ++i) body(backwards_ ? kLanes - 1 - i : i);
    }
  }

  /// The smallest value of all lanes.
  LSM_HOST_DEVICE uint64_t min(const Var<uint64_t>& values) const {
    uint64_t lowest = values[0];
    for (int lane = 1; lane < kLanes; ++lane) {
      lowest = values[lane] < lowest ? values[lane] : lowest;
    }
    return lowest;
  }

  /// The sum of the values of all lanes, added in the order of GpuWarp.
  LSM_HOST_DEVICE float sum(const Var<float>& values) const {
    Var<float> sums = values;
    for (int step = kLanes / 2; step > 0; step /= 2) {
      for (int lane = 0; lane < step; ++lane) sums[lane] += sums[lane + step];
    }
    return sums[0];
  }
  /// The largest value of all lanes.
  LSM_HOST_DEVICE float max(const Var<float>& values) const {
    float largest = values[0];
    for (int lane = 1; lane < kLanes; ++lane) {
      largest = values[lane] > largest ? values[lane] : largest;
    }
    return largest;
  }

  /// The value of `lane`.
  LSM_HOST_DEVICE int32_t get(const Var<int32_t>& values, int lane) const { return values[lane]; }

  /// For each lane, the value of lane from_of(lane).
  template <class FromOf>
  LSM_HOST_DEVICE Var<uint64_t> shuffle(const Var<uint64_t>& values, const FromOf& from_of) const {
    Var<uint64_t> shuffled;
    for (int lane = 0; lane < kLanes; ++lane) shuffled[lane] = values[from_of(lane)];
    return shuffled;
  }

  /// The lowest lane whose vote is true, or -1.
  LSM_HOST_DEVICE int first(const Var<bool>& votes) const {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (votes[lane]) return lane;
    }
    return -1;
  }

  /// Replaces every lane's value by the sum of those of lower lanes. Returns the sum of all.
  LSM_HOST_DEVICE int64_t sum_before(Var<int64_t>& values) const {
    int64_t sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int64_t value = values[lane];
      values[lane] = sum;
      sum += value;
    }
    return sum;
  }

 private:
  bool backwards_;
};

/// One lane: a loop over lanes is then a plain loop.
using OneLane = HostLanes<1>;
/// The host's replacement of GpuWarp.
using HostWarp = HostLanes<32>;

#if defined(__CUDACC__)

/// The 32 threads of a warp, all of which must be there. A variable is a register of the thread.
class GpuWarp {
 public:
  static constexpr int kLanes = 32;

  template <class T>
  class Var {
   public:
    LSM_HOST_DEVICE T& operator[](int) { return value_; }
    LSM_HOST_DEVICE const T& operator[](int) const { return value_; }

   private:
    T value_{};
  };

  /// The barrier before the body orders it after the lanes' reads between steps. The barrier behind
  /// it makes its writes visible to all lanes (__syncwarp orders memory among participants).
  template <class Body>
  LSM_HOST_DEVICE void each(const Body& body) const {
#if defined(__CUDA_ARCH__)
    __syncwarp();
    body(static_cast<int>(threadIdx.x % kLanes));
    __syncwarp();
#else
    static_cast<void>(body);
#endif
  }

  LSM_HOST_DEVICE uint64_t min(const Var<uint64_t>& values) const {
    uint64_t lowest = values[0];
#if defined(__CUDA_ARCH__)
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(0xFFFFFFFFu, lowest, step);
      lowest = other < lowest ? other : lowest;
    }
#endif
    return lowest;
  }

  LSM_HOST_DEVICE float sum(const Var<float>& values) const {
    float sum = values[0];
#if defined(__CUDA_ARCH__)
    for (int step = kLanes / 2; step > 0; step /= 2) sum += exchanged(sum, step);
#endif
    return sum;
  }
  LSM_HOST_DEVICE float max(const Var<float>& values) const {
    float largest = values[0];
#if defined(__CUDA_ARCH__)
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const float other = exchanged(largest, step);
      largest = other > largest ? other : largest;
    }
#endif
    return largest;
  }

  LSM_HOST_DEVICE int32_t get(const Var<int32_t>& values, int lane) const {
#if defined(__CUDA_ARCH__)
    return __shfl_sync(0xFFFFFFFFu, values[0], lane);
#else
    return values[lane];
#endif
  }

  template <class FromOf>
  LSM_HOST_DEVICE Var<uint64_t> shuffle(const Var<uint64_t>& values, const FromOf& from_of) const {
    Var<uint64_t> shuffled;
#if defined(__CUDA_ARCH__)
    const int from = from_of(static_cast<int>(threadIdx.x % kLanes));
    shuffled[0] = __shfl_sync(0xFFFFFFFFu, values[0], from);
#else
    shuffled[0] = values[from_of(0)];
#endif
    return shuffled;
  }

  LSM_HOST_DEVICE int first(const Var<bool>& votes) const {
#if defined(__CUDA_ARCH__)
    return __ffs(static_cast<int>(__ballot_sync(0xFFFFFFFFu, votes[0]))) - 1;
#else
    return votes[0] ? 0 : -1;
#endif
  }

  LSM_HOST_DEVICE int64_t sum_before(Var<int64_t>& values) const {
    const int64_t value = values[0];
#if defined(__CUDA_ARCH__)
    const int lane = static_cast<int>(threadIdx.x % kLanes);
    int64_t sum = value;
    for (int step = 1; step < kLanes; step *= 2) {
      const int64_t lower = __shfl_sync(0xFFFFFFFFu, sum, (lane - step) & (kLanes - 1));
      if (lane >= step) sum += lower;
    }
    values[0] = sum - value;
    return __shfl_sync(0xFFFFFFFFu, sum, kLanes - 1);
#else
    values[0] = 0;
    return value;
#endif
  }

 private:
#if defined(__CUDA_ARCH__)
  /// The value of the lane whose number differs in the bit `step`.
  static __device__ float exchanged(float value, int step) {
    return __uint_as_float(__shfl_xor_sync(0xFFFFFFFFu, __float_as_uint(value), step));
  }
#endif
};

#endif

}  // namespace lsm
