// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// draw_positions for several nodes at once, one per SIMD lane.
#pragma once

#include <cstdint>

namespace lsm {

struct DrawSimd {
  static constexpr int kLanes = 16;
  static constexpr uint32_t kMaxCount = 64;

  /// Sets the node of a lane. Every lane needs a node whose degree exceeds the count.
  void set(int lane, uint64_t id, uint32_t node_degree) {
    id_low[lane] = static_cast<uint32_t>(id);
    id_high[lane] = static_cast<uint32_t>(id >> 32);
    degree[lane] = node_degree;
  }

  // Aligned so that no vector crosses a cache line.
  alignas(64) uint32_t id_low[kLanes];
  alignas(64) uint32_t id_high[kLanes];
  alignas(64) uint32_t degree[kLanes];

  // The result: lane l took positions[i][l] for i < count.
  alignas(64) uint32_t positions[kMaxCount][kLanes];
  // Not zero: the lane may have met a number that PhiloxStream::below rejects, and draw_positions
  // must repeat its draw. The probability is below count * degree / 2^32.
  alignas(64) uint32_t uncertain[kLanes];
};

/// Draws `count` <= kMaxCount positions per lane: those that draw_positions takes from
/// PhiloxStream(key, id, hop).
void draw_simd(DrawSimd& lanes, uint32_t count, uint64_t key, uint32_t hop);

}  // namespace lsm
