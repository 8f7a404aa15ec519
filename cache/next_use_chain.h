// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The next-use chain: for every occurrence of an id in the window, the batch of its next one. Ours:
// it replaces LSM-GNN's passes over the window every few iterations (section 4.2).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "cache/fifo_slabs.h"
#include "cache/occurrence_table.h"
#include "cache/policy/line.h"

namespace lsm::cache {

/// An id in a batch, and the distance, in occurrences of the window, to its next occurrence (0:
/// none), which determines the batch and the position there. 12 bytes, so that with the table's 7
/// to 10 bytes an entry of the window takes less than 24.
struct Occurrence {
  uint32_t id_low;
  uint32_t id_high;
  uint32_t next_distance;

  int64_t id() const { return static_cast<int64_t>(uint64_t{id_high} << 32 | id_low); }
};
static_assert(sizeof(Occurrence) == 12);

/// A request, as the cache sees it: the next batch in the window that contains the id (or
/// kNoNextUse), and its position there.
struct Access {
  int64_t id;
  uint32_t next_use;
  uint32_t next_position;
};

/// Throws ArgumentError, which names the first id of a batch that is not in [0, num_nodes), or
/// below 0 if `num_nodes` is negative.
void check_ids(std::span<const int64_t> ids, int64_t num_nodes);
/// Throws ArgumentError, which names the first repeated id of batch `b`. Precondition: there is
/// one.
[[noreturn]] void throw_repeated(std::span<const int64_t> ids, int64_t b);

/// Holds the batches of the window. Not thread-safe.
class NextUseChain {
 public:
  NextUseChain() : blocks_(16) {}

  int64_t first_batch() const { return first_batch_; }
  int64_t end_batch() const { return first_batch_ + static_cast<int64_t>(batches_.size()); }

  /// Appends a batch and links each id from its latest earlier occurrence in the window. Returns
  /// the positions of the ids without an earlier occurrence, valid until the next call. Throws
  /// ArgumentError, and changes nothing, if an id is repeated.
  std::span<const uint32_t> push(std::span<const int64_t> ids);

  /// Batch `b` in [first_batch(), end_batch()). Valid until it is retired.
  std::span<const Occurrence> batch(int64_t b) const {
    return batches_[static_cast<size_t>(b - first_batch_)].occurrences;
  }

  /// Writes requests [begin, end) of batch `b` to accesses[begin .. end).
  void read(int64_t b, size_t begin, size_t end, Access* accesses) const;

  /// Drops the first batch of the window.
  void retire();

  int64_t num_entries() const { return num_entries_; }
  int64_t num_bytes() const;

 private:
  // Occurrences are numbered over all batches, mod 2^32. Each batch starts a new block, so that a
  // small table maps an index to its occurrence.
  static constexpr uint32_t kBlockSize = 1024;
  static constexpr uint32_t kMaxBlocks = uint32_t{1} << 22;
  static constexpr uint32_t num_blocks(size_t num_ids) {
    return static_cast<uint32_t>(num_ids / kBlockSize + 1);
  }
  struct Batch {
    uint32_t first_index = 0;
    std::span<Occurrence> occurrences;  // in slabs_
  };
  struct Block {
    Occurrence* occurrences;
    uint32_t batch;
    uint32_t first_position;  // in that batch
  };

  Block& block(uint32_t number) { return blocks_[number & (blocks_.size() - 1)]; }
  const Block& block(uint32_t number) const { return blocks_[number & (blocks_.size() - 1)]; }
  Occurrence& at(uint32_t index) const {
    return block(index / kBlockSize).occurrences[index % kBlockSize];
  }
  Batch& open_batch(std::span<const int64_t> ids);
  void link(std::span<const int64_t> ids, size_t i, uint64_t hash, uint32_t first);
  void undo(std::span<const int64_t> ids, int64_t count);

  std::deque<Batch> batches_;
  int64_t first_batch_ = 0;
  int64_t num_entries_ = 0;
  OccurrenceTable latest_;
  std::vector<Block> blocks_;  // a ring; its size is a power of two
  // Starts shortly before the occurrences' numbers wrap, so that every run takes that path.
  uint32_t first_block_ = kMaxBlocks - 3;
  uint32_t end_block_ = first_block_;
  std::vector<int64_t> previous_;   // of the batch being pushed: earlier occurrence, or -1
  std::vector<uint32_t> unlinked_;  // of the batch pushed last
  FifoSlabs<Occurrence> slabs_;
};

}  // namespace lsm::cache
