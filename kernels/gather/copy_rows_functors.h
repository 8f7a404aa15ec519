// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Row copies by warps: one row each, 16 bytes per lane and access where addresses and the row's
// size allow it. Any of the addresses may be pinned host memory, which GPUs reach over PCIe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/lanes.h"
#include "kernels/core/macros.h"

namespace lsm {

/// 16 bytes that are loaded and stored at once.
struct alignas(16) Word16 {
  uint32_t part[4];
};

/// Copies a row of `row_bytes` bytes, a multiple of sizeof(Word), with all lanes.
template <class Word, class Lanes>
LSM_HOST_DEVICE void copy_row(const Lanes& lanes, const std::byte* source, std::byte* target,
                              int64_t row_bytes) {
  // Loads that are under way at once: what hides the latency of memory, or of PCIe.
  constexpr int kAhead = 4;
  const Word* const from = reinterpret_cast<const Word*>(source);
  Word* const to = reinterpret_cast<Word*>(target);
  const int64_t count = row_bytes / static_cast<int64_t>(sizeof(Word));
  lanes.each([&](int lane) {
    int64_t i = lane;
    for (; i + (kAhead - 1) * Lanes::kLanes < count; i += kAhead * Lanes::kLanes) {
      Word words[kAhead];
      for (int k = 0; k < kAhead; ++k) words[k] = from[i + k * Lanes::kLanes];
      for (int k = 0; k < kAhead; ++k) to[i + k * Lanes::kLanes] = words[k];
    }
    for (; i < count; i += Lanes::kLanes) to[i] = from[i];
  });
}

/// A warp per row: copies rows.source(i) to rows.target(i), and nothing where the source is null.
template <class Word, class Rows>
struct CopyRows {
  Rows rows;
  int64_t row_bytes;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const std::byte* const source = rows.source(i);
    if (source != nullptr) copy_row<Word>(lanes, source, rows.target(i), row_bytes);
  }
};

/// Rows by their numbers in two blocks of memory; a negative number means no copy. Without a list
/// of numbers row i is number i.
template <class Number>
struct NumberedRows {
  const std::byte* from;
  const Number* from_row;  // [count], or null
  std::byte* to;
  const Number* to_row;  // [count], or null
  int64_t row_bytes;

  LSM_HOST_DEVICE const std::byte* source(int64_t i) const {
    const int64_t row = from_row == nullptr ? i : int64_t{from_row[i]};
    const bool is_kept = row >= 0 && (to_row == nullptr || to_row[i] >= 0);
    return is_kept ? from + row * row_bytes : nullptr;
  }
  LSM_HOST_DEVICE std::byte* target(int64_t i) const {
    return to + (to_row == nullptr ? i : int64_t{to_row[i]}) * row_bytes;
  }
};

/// The bits in which any of the addresses and sizes are set, to see how they are aligned.
template <class... Address>
uintptr_t alignment_bits(int64_t row_bytes, const Address*... address) {
  return (static_cast<uintptr_t>(row_bytes) | ... | reinterpret_cast<uintptr_t>(address));
}

/// Runs CopyRows over [0, count) with the widest word that `alignment` (alignment_bits) allows.
template <class Backend, class Rows>
void copy_rows_on(Backend& backend, int64_t count, int64_t row_bytes, uintptr_t alignment,
                  const Rows& rows) {
  if (row_bytes == 0) return;
  if (alignment % sizeof(Word16) == 0) {
    backend.for_each_warp(count, CopyRows<Word16, Rows>{rows, row_bytes});
  } else if (alignment % sizeof(uint32_t) == 0) {
    backend.for_each_warp(count, CopyRows<uint32_t, Rows>{rows, row_bytes});
  } else {
    backend.for_each_warp(count, CopyRows<uint8_t, Rows>{rows, row_bytes});
  }
}

}  // namespace lsm
