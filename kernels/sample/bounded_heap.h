// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A heap of the smallest values, in memory of the caller.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"

namespace lsm::device_sample {

/// Moves heap[at] down to its place in a heap [size] whose largest element is first.
template <class T>
LSM_HOST_DEVICE void sift_down(T* heap, uint32_t size, uint32_t at) {
  const T value = heap[at];
  for (;;) {
    uint64_t child = 2 * uint64_t{at} + 1;
    if (child >= size) break;
    if (child + 1 < size && heap[child + 1] > heap[child]) ++child;
    if (heap[child] <= value) break;
    heap[at] = heap[child];
    at = static_cast<uint32_t>(child);
  }
  heap[at] = value;
}

/// Puts `value` in a heap with `size` of at most `capacity` elements; in a full heap it replaces
/// the largest.
template <class T>
LSM_HOST_DEVICE void push_bounded(T* heap, uint32_t size, uint32_t capacity, T value) {
  if (size == capacity) {
    heap[0] = value;
    sift_down(heap, size, 0);
    return;
  }
  uint32_t at = size;
  while (at > 0 && heap[(at - 1) / 2] < value) {
    heap[at] = heap[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap[at] = value;
}

LSM_HOST_DEVICE inline void heap_sort(uint32_t* values, uint32_t size) {
  for (uint32_t i = size / 2; i > 0; --i) sift_down(values, size, i - 1);
  for (uint32_t end = size; end > 1; --end) {
    const uint32_t largest = values[0];
    values[0] = values[end - 1];
    values[end - 1] = largest;
    sift_down(values, end - 1, 0);
  }
}

}  // namespace lsm::device_sample
