// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace lsm {

/// Counts latencies in buckets of at most 1/16 relative width, from 1 ns to about a day.
class LatencyHistogram {
 public:
  void add(uint64_t nanoseconds) {
    counts_[bucket(nanoseconds)].fetch_add(1, std::memory_order_relaxed);
  }

  /// Upper edge, in nanoseconds, of the bucket that holds the given quantile; 0 if empty.
  uint64_t quantile(double q) const {
    uint64_t total = 0;
    for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
    if (total == 0) return 0;
    const auto rank = static_cast<uint64_t>(q * static_cast<double>(total - 1));
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i].load(std::memory_order_relaxed);
      if (seen > rank) return upper_edge(i);
    }
    return upper_edge(counts_.size() - 1);
  }

  void reset() {
    for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr int kSubBits = 4;  // 16 linear buckets per power of two
  static constexpr int kMaxExponent = 46;

  static size_t bucket(uint64_t value) {
    if (value < (1u << kSubBits)) return value;
    const int exponent = std::min(static_cast<int>(std::bit_width(value)) - 1, kMaxExponent);
    const uint64_t sub = (value >> (exponent - kSubBits)) & ((1u << kSubBits) - 1);
    return (static_cast<size_t>(exponent - kSubBits + 1) << kSubBits) + sub;
  }

  static uint64_t upper_edge(size_t index) {
    if (index < (1u << kSubBits)) return index;
    const int exponent = static_cast<int>(index >> kSubBits) + kSubBits - 1;
    const uint64_t sub = index & ((1u << kSubBits) - 1);
    return ((uint64_t{1} << kSubBits) + sub + 1) << (exponent - kSubBits);
  }

  std::array<std::atomic<uint64_t>, (kMaxExponent - kSubBits + 2) << kSubBits> counts_{};
};

/// Counters of an engine since it was opened or reset. They only grow in between. Each is exact,
/// but a snapshot while reads are in flight need not be consistent across counters.
struct ReadStats {
  std::atomic<int64_t> requests{0};
  std::atomic<int64_t> rows{0};
  std::atomic<int64_t> bytes_requested{0};  // rows x row_bytes
  std::atomic<int64_t> reads{0};            // reads submitted to the disk, including continuations
  std::atomic<int64_t> bytes_read{0};       // bytes that the disk returned
  std::atomic<int64_t> short_reads{0};
  std::atomic<int64_t> errors{0};
  LatencyHistogram latency;  // of one read, from submission to completion
  /// Planned reads that have neither arrived nor failed. No counter: reset() keeps it.
  std::atomic<int64_t> outstanding{0};

  void reset() {
    for (auto* counter :
         {&requests, &rows, &bytes_requested, &reads, &bytes_read, &short_reads, &errors}) {
      counter->store(0, std::memory_order_relaxed);
    }
    latency.reset();
  }
};

}  // namespace lsm
