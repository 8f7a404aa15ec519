// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The next-use chain on a grid: functors over raw memory, one thread per occurrence. The links are
// those of NextUseChain.
#pragma once

#include <cstdint>

#include "cache/next_use_chain.h"
#include "cache/policy/line.h"
#include "kernels/core/atomics.h"
#include "kernels/core/hash.h"

namespace lsm::cache {

/// The memory of a chain, not owned. Occurrences are numbered over all batches, mod 2^31, and lie
/// in a ring. A slot of the hash table names the latest occurrence of an id. Ids that left the
/// window keep their slots, which match nothing, until the table is rebuilt. So nothing is ever
/// deleted, and the search for an id ends at the first empty slot.
struct ChainRef {
  static constexpr uint32_t kEmpty = 0;  // a slot that was never used
  static constexpr uint32_t kUsed = uint32_t{1} << 31;

  Access* ring;     // [mask + 1]
  uint32_t* slots;  // [num_slots] kUsed | number, or kEmpty
  uint32_t mask;    // the ring's size is a power of two
  uint32_t num_slots;
  uint32_t first;  // number of the first occurrence in the window
  uint32_t live;   // occurrences in the window

  /// The occurrence with this number. Ignores the bit kUsed.
  LSM_HOST_DEVICE Access& at(uint32_t number) const { return ring[number & mask]; }

  /// The number of occurrences from `from` to `number`. Ignores their bits kUsed.
  LSM_HOST_DEVICE static uint32_t distance(uint32_t from, uint32_t number) {
    return (number - from) & ~kUsed;
  }
  LSM_HOST_DEVICE bool is_live(uint32_t number) const { return distance(first, number) < live; }

  LSM_HOST_DEVICE uint32_t home(int64_t id) const {
    const uint64_t hash = mix64(static_cast<uint64_t>(id));
    return static_cast<uint32_t>(((hash >> 32) * num_slots) >> 32);
  }
  LSM_HOST_DEVICE uint32_t next(uint32_t slot) const {
    return slot + 1 == num_slots ? 0 : slot + 1;
  }
};

/// A batch that enters the window, whose occurrences are the last of the chain. Not owned.
struct EnteringRef {
  /// Stands for the earlier occurrence of an id that is repeated in this batch.
  static constexpr uint32_t kRepeated = 1;

  ChainRef chain;
  uint32_t first;  // number of its first occurrence
  uint32_t count;
  uint32_t batch;
  uint32_t* previous;    // [count] slot values: earlier occurrence, kEmpty if none, or kRepeated
  uint32_t* place;       // [count] the slot that names it
  uint32_t* is_refused;  // [2] not 0 if any id is repeated, and if any is out of range; 0 before
};

/// Writes the occurrences, with no next uses, and checks that ids are in [0, end).
struct WriteOccurrence {
  EnteringRef entering;
  const int64_t* ids;  // [count]
  int64_t end;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    if (ids[i] < 0 || ids[i] >= end) atomic_compare_exchange(entering.is_refused + 1, 0u, 1u);
    entering.chain.at(entering.first + static_cast<uint32_t>(i)) = {ids[i], kNoNextUse, 0};
  }
};

/// Links each occurrence from the latest earlier one of its id, and makes it the latest. The slots
/// that threads take depend on their order; the links do not.
struct LinkOccurrence {
  EnteringRef entering;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const ChainRef& chain = entering.chain;
    const uint32_t number = ChainRef::kUsed | (entering.first + static_cast<uint32_t>(i));
    const int64_t id = chain.at(number).id;
    for (uint32_t slot = chain.home(id);; slot = chain.next(slot)) {
      uint32_t held = atomic_load(&chain.slots[slot]);
      if (held == ChainRef::kEmpty) {
        held = atomic_compare_exchange(&chain.slots[slot], ChainRef::kEmpty, number);
        if (held == ChainRef::kEmpty) return found(i, slot, held);
      }
      if (!chain.is_live(held) || chain.at(held).id != id) continue;
      // Only the same id of the same batch could replace it.
      if (ChainRef::distance(entering.first, held) < entering.count ||
          atomic_compare_exchange(&chain.slots[slot], held, number) != held) {
        entering.previous[i] = EnteringRef::kRepeated;
        atomic_compare_exchange(entering.is_refused, 0u, 1u);
        return;
      }
      chain.at(held).next_use = entering.batch;
      chain.at(held).next_position = static_cast<uint32_t>(i);
      return found(i, slot, held);
    }
  }

 private:
  LSM_HOST_DEVICE void found(int64_t i, uint32_t slot, uint32_t previous) const {
    entering.place[i] = slot;
    entering.previous[i] = previous;
  }
};

/// Undoes LinkOccurrence. A slot that was empty before the batch becomes empty again: only ids of
/// the same batch have probed past it.
struct UnlinkOccurrence {
  EnteringRef entering;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const uint32_t previous = entering.previous[i];
    if (previous == EnteringRef::kRepeated) return;
    entering.chain.slots[entering.place[i]] = previous;
    if (previous == ChainRef::kEmpty) return;
    entering.chain.at(previous).next_use = kNoNextUse;
    entering.chain.at(previous).next_position = 0;
  }
};

/// Enters the latest occurrence of each id of the window into an empty table.
struct EnterLatest {
  ChainRef chain;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const uint32_t number = ChainRef::kUsed | (chain.first + static_cast<uint32_t>(i));
    const Access& occurrence = chain.at(number);
    if (occurrence.next_use != kNoNextUse) return;
    uint32_t slot = chain.home(occurrence.id);
    while (atomic_compare_exchange(&chain.slots[slot], ChainRef::kEmpty, number) !=
           ChainRef::kEmpty) {
      slot = chain.next(slot);
    }
  }
};

/// Copies the ids of occurrences from number `first` on.
struct ReadIds {
  ChainRef chain;
  uint32_t first;
  int64_t* ids;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    ids[i] = chain.at(first + static_cast<uint32_t>(i)).id;
  }
};

/// Copies the occurrences of the window to another ring.
struct MoveOccurrence {
  ChainRef from;
  Access* ring;
  uint32_t mask;

  LSM_HOST_DEVICE void operator()(int64_t i) const {
    const uint32_t number = from.first + static_cast<uint32_t>(i);
    ring[number & mask] = from.at(number);
  }
};

}  // namespace lsm::cache
