// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// S3-FIFO (Yang et al., SOSP 2023): newcomers enter a small queue of a tenth of the lines, or the
// main queue if a ghost queue remembers them. From the small queue, lines hit more than once move
// to the main queue with cleared counts; others are evicted, and the ghost remembers them. From the
// main queue, lines with a positive count are reinserted with one less. Counts go up to 3. Queues,
// and a ghost of `ways` fingerprints, per set. Batch-synchrony: the lines touched at t stand still.
// A queue is served as if they were not in it, but they count for its length. If the queue whose
// turn it is has no line that can be evicted, the other one is served. The main queue has the rest
// of the lines, so it needs no limit of its own: after every move the queue that is too long is
// determined again.
#pragma once

#include "cache/policy/insertion_order.h"
#include "kernels/core/hash.h"

namespace lsm::cache {

struct S3Fifo : PolicyDefaults {
  // One word, so that a line takes less than 32 bytes with the ghost and the position for a victim
  // buffer.
  // Bit 31..3: sequence number in its queue, bit 2: in the main queue, bits 1..0: count.
  using Line = cache::Line<1>;
  struct State {
    uint32_t next_sequence;
    uint32_t num_small;
    uint32_t num_ghosts;
  };
  static constexpr uint32_t kMain = 4;
  static constexpr uint32_t kCount = 3;
  static constexpr uint32_t kMaxSequence = (1u << 29) - 1;

  /// Ghosts: fingerprints of 4 bytes, as published, oldest first; two to a word.
  LSM_HOST_DEVICE static constexpr int32_t extra_words(int32_t ways) { return (ways + 1) / 2; }

  LSM_HOST_DEVICE void on_hit(Line& line) const {
    if ((line.word[0] & kCount) < 3) ++line.word[0];
  }

  LSM_HOST_DEVICE void on_insert(SetView<S3Fifo>& set, int32_t way, const Newcomer& row) const {
    const bool remembered = forget_ghost(set, row.id);
    if (!remembered) ++set.state->num_small;
    append(set, way, remembered ? kMain : 0);
  }

  LSM_HOST_DEVICE int32_t pick_victim(SetView<S3Fifo>& set, const Turn& turn) const {
    const uint32_t small_target = set.ways < 20 ? 1 : set.ways / 10;
    for (;;) {
      int32_t small = oldest(set, turn, 0);
      int32_t main = oldest(set, turn, kMain);
      if (small < 0 && main < 0) return -1;
      const bool serve_small = main < 0 || (small >= 0 && set.state->num_small >= small_target);
      const int32_t way = serve_small ? small : main;
      const uint32_t count = set.lines[way].word[0] & kCount;
      if (serve_small) {
        --set.state->num_small;
        if (count <= 1) add_ghost(set, set.tags[way]);
      }
      if (count <= uint32_t{serve_small}) return way;
      append(set, way, serve_small ? kMain : kMain | (count - 1));
    }
  }

 private:
  LSM_HOST_DEVICE static int32_t oldest(const SetView<S3Fifo>& set, const Turn& turn,
                                        uint32_t queue) {
    return oldest_way(
        set.ways, 0, [&](int32_t way) { return set.lines[way].word[0] >> 3; },
        [&](int32_t way) {
          return (set.lines[way].word[0] & kMain) == queue && set.can_evict(way, turn);
        });
  }

  /// Puts the line at the end of the queue that `flags` names.
  LSM_HOST_DEVICE static void append(SetView<S3Fifo>& set, int32_t way, uint32_t flags) {
    if (set.state->next_sequence > kMaxSequence) renumber(set);
    set.lines[way].word[0] = set.state->next_sequence++ << 3 | flags;
  }

  /// Replaces the sequence numbers by their ranks: 2^29 appends to one set are possible.
  LSM_HOST_DEVICE static void renumber(SetView<S3Fifo>& set) {
    const auto sequence_of = [&](int32_t way) { return set.lines[way].word[0] >> 3; };
    uint32_t from = 0;
    uint32_t rank = 0;
    for (;; ++rank) {
      const int32_t way = oldest_way(set.ways, from, sequence_of, [](int32_t) { return true; });
      if (way < 0) break;
      from = sequence_of(way) + 1;
      set.lines[way].word[0] = rank << 3 | (set.lines[way].word[0] & 7);
    }
    set.state->next_sequence = rank;
  }

  LSM_HOST_DEVICE static void add_ghost(SetView<S3Fifo>& set, int64_t id) {
    if (set.state->num_ghosts == static_cast<uint32_t>(set.ways)) erase_ghost(set, 0);
    set_ghost(set, set.state->num_ghosts++, fingerprint(id));
  }

  LSM_HOST_DEVICE static bool forget_ghost(SetView<S3Fifo>& set, int64_t id) {
    for (uint32_t i = 0; i < set.state->num_ghosts; ++i) {
      if (ghost(set, i) != fingerprint(id)) continue;
      erase_ghost(set, i);
      return true;
    }
    return false;
  }

  LSM_HOST_DEVICE static void erase_ghost(SetView<S3Fifo>& set, uint32_t position) {
    --set.state->num_ghosts;
    for (uint32_t i = position; i < set.state->num_ghosts; ++i) {
      set_ghost(set, i, ghost(set, i + 1));
    }
  }

  LSM_HOST_DEVICE static uint32_t fingerprint(int64_t id) {
    return static_cast<uint32_t>(mix64(static_cast<uint64_t>(id)) >> 32);
  }
  LSM_HOST_DEVICE static uint32_t ghost(const SetView<S3Fifo>& set, uint32_t i) {
    return static_cast<uint32_t>(set.extra[i / 2] >> (i % 2 * 32));
  }
  LSM_HOST_DEVICE static void set_ghost(SetView<S3Fifo>& set, uint32_t i, uint32_t print) {
    const uint32_t shift = i % 2 * 32;
    set.extra[i / 2] = (set.extra[i / 2] & ~(uint64_t{0xFFFFFFFFu} << shift)) |
                       static_cast<uint64_t>(print) << shift;
  }
};

}  // namespace lsm::cache
