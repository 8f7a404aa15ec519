// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Row copies by warps, 16 bytes per lane and access where addresses and the row's size allow it.
// Any of the addresses may be pinned host memory, which GPUs reach over PCIe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/core/lanes.h"
#include "kernels/core/macros.h"

namespace lsm {

/// 16 bytes that are loaded and stored at once.
struct alignas(16) Word16 {
  uint32_t part[4];
};

/// 8 bytes, of rows such as those of 50 float32.
using Word8 = unsigned long long;

/// Loads of a lane that are under way at once: they hide the latency of memory, or of PCIe.
inline constexpr int kCopyAhead = 4;

/// Stores a word that this kernel does not read again: it is the first to leave the GPU's cache.
template <class Word>
LSM_HOST_DEVICE void store_streaming(Word* target, const Word& word) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Word) == sizeof(uint4)) {
    __stcs(reinterpret_cast<uint4*>(target),
           make_uint4(word.part[0], word.part[1], word.part[2], word.part[3]));
  } else {
    __stcs(target, word);
  }
#else
  *target = word;
#endif
}

/// Copies a row of `row_bytes` bytes, a multiple of sizeof(Word), with all lanes.
template <class Word, class Lanes>
LSM_HOST_DEVICE void copy_row(const Lanes& lanes, const std::byte* source, std::byte* target,
                              int64_t row_bytes) {
  const Word* const from = reinterpret_cast<const Word*>(source);
  Word* const to = reinterpret_cast<Word*>(target);
  const int64_t count = row_bytes / static_cast<int64_t>(sizeof(Word));
  lanes.each([&](int lane) {
    for (int64_t i = lane; i < count; i += kCopyAhead * Lanes::kLanes) {
      Word words[kCopyAhead] = {};
      for (int k = 0; k < kCopyAhead; ++k) {
        if (i + k * Lanes::kLanes < count) words[k] = from[i + k * Lanes::kLanes];
      }
      for (int k = 0; k < kCopyAhead; ++k) {
        if (i + k * Lanes::kLanes < count) store_streaming(to + i + k * Lanes::kLanes, words[k]);
      }
    }
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

/// The same for rows of up to kMaxBytes. As few lanes as a row has words, or a few more, and at
/// most all, copy it, and each has several rows under way. Lanes that share rows look up a row
/// each, and pass on the addresses.
template <class Word, class Rows, int kWarpLanes>
struct CopyShortRows {
  static constexpr int64_t kMaxBytes = 1024;

  Rows rows;
  int32_t num_words;
  int32_t row_lanes;  // a power of two, up to the lanes of a warp
  int64_t count;

  static CopyShortRows of(const Rows& rows, int64_t row_bytes, int64_t count) {
    const auto words = static_cast<int32_t>(row_bytes / static_cast<int64_t>(sizeof(Word)));
    const auto lanes = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(words)));
    return {rows, words, lanes < kWarpLanes ? lanes : kWarpLanes, count};
  }
  int64_t num_warps() const { return (count + rows_of_warp() - 1) / rows_of_warp(); }

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t warp) const {
    static_assert(Lanes::kLanes == kWarpLanes);
    using Address = typename Lanes::template Var<uint64_t>;
    const int step = kWarpLanes / row_lanes;  // rows from one of a lane's to its next
    const int64_t first = warp * rows_of_warp();
    Address own_source, own_target, source[kCopyAhead], target[kCopyAhead];
    const bool is_shared = row_lanes >= kCopyAhead;  // no more rows than lanes
    if (is_shared) {
      lanes.each([&](int lane) {
        if (lane < rows_of_warp()) look_up(first + lane, &own_source[lane], &own_target[lane]);
      });
    }
    for (int k = 0; k < kCopyAhead; ++k) {
      const auto row_of = [&](int lane) { return lane / row_lanes + k * step; };
      if (is_shared) {
        source[k] = lanes.shuffle(own_source, row_of);
        target[k] = lanes.shuffle(own_target, row_of);
      } else {
        lanes.each(
            [&](int lane) { look_up(first + row_of(lane), &source[k][lane], &target[k][lane]); });
      }
    }
    lanes.each([&](int lane) {
      for (int32_t at = lane % row_lanes; at < num_words; at += row_lanes) {
        Word words[kCopyAhead] = {};
        for (int k = 0; k < kCopyAhead; ++k) {
          if (source[k][lane] != 0) words[k] = reinterpret_cast<const Word*>(source[k][lane])[at];
        }
        for (int k = 0; k < kCopyAhead; ++k) {
          if (source[k][lane] == 0) continue;
          store_streaming(reinterpret_cast<Word*>(target[k][lane]) + at, words[k]);
        }
      }
    });
  }

 private:
  LSM_HOST_DEVICE int64_t rows_of_warp() const { return kCopyAhead * (kWarpLanes / row_lanes); }

  /// The addresses of row i; source 0: there is nothing to copy.
  LSM_HOST_DEVICE void look_up(int64_t i, uint64_t* source, uint64_t* target) const {
    *source = i < count ? reinterpret_cast<uint64_t>(rows.source(i)) : 0;
    *target = *source != 0 ? reinterpret_cast<uint64_t>(rows.target(i)) : 0;
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

/// Copies rows [0, count), whose size is a multiple of sizeof(Word).
template <class Word, class Backend, class Rows>
void copy_words_on(Backend& backend, int64_t count, int64_t row_bytes, const Rows& rows) {
  using Short = CopyShortRows<Word, Rows, Backend::Warp::kLanes>;
  if (row_bytes > Short::kMaxBytes) {
    backend.for_each_warp(count, CopyRows<Word, Rows>{rows, row_bytes});
    return;
  }
  const Short copy = Short::of(rows, row_bytes, count);
  backend.for_each_warp(copy.num_warps(), copy);
}

/// Copies rows [0, count) by the widest word that `alignment` (alignment_bits) allows.
template <class Backend, class Rows>
void copy_rows_on(Backend& backend, int64_t count, int64_t row_bytes, uintptr_t alignment,
                  const Rows& rows) {
  if (row_bytes == 0) return;
  if (alignment % sizeof(Word16) == 0) {
    copy_words_on<Word16>(backend, count, row_bytes, rows);
  } else if (alignment % sizeof(Word8) == 0) {
    copy_words_on<Word8>(backend, count, row_bytes, rows);
  } else if (alignment % sizeof(uint32_t) == 0) {
    copy_words_on<uint32_t>(backend, count, row_bytes, rows);
  } else if (alignment % sizeof(uint16_t) == 0) {
    copy_words_on<uint16_t>(backend, count, row_bytes, rows);
  } else {
    copy_words_on<uint8_t>(backend, count, row_bytes, rows);
  }
}

}  // namespace lsm
