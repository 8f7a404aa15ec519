// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The host thread that copies rows out of the victim buffer before they are requested (LSM-GNN,
// section 4.3: while the model trains). The metadata word of a row names its batch and its position
// there, so nothing is searched.
//
// Ownership: from pause() to resume() the caller owns the victim buffer and every batch. Otherwise
// the thread reads victim slots, and writes the positions of open batches that their plans serve
// from these slots. No plan before a batch's own writes a slot that serves the batch, because the
// row stays until then; neither storage nor a replay writes such a position earlier. So a
// prefetched row equals the row that the replay would copy. The replay copies the other rows,
// before its own evictions may write the slot again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache/plan.h"

namespace lsm {

/// Rows that enter the victim buffer, or whose next use becomes known there.
struct VictimMoves {
  std::span<const int64_t> slot;  // -1: the row is dropped
  std::span<const int64_t> word;  // metadata words
};

class VictimPrefetcher {
 public:
  struct Options {
    int64_t num_slots = 0;
    int64_t row_bytes = 0;
    int64_t iterations = 0;   // prefetched ahead of the last replay; 0: none
    double timeout_secs = 0;  // of the wait for a copy in flight
  };

  /// `rows`: the victim buffer's. Starts no thread if there is nothing to prefetch.
  VictimPrefetcher(const Options& options, const std::byte* rows);
  /// Ends the thread. Blocks for the few rows that it may be copying.
  ~VictimPrefetcher();
  VictimPrefetcher(const VictimPrefetcher&) = delete;
  VictimPrefetcher& operator=(const VictimPrefetcher&) = delete;

  /// The destination of a coming iteration's rows. The memory must stay valid until record() of
  /// that iteration, or forget().
  struct Batch {
    std::span<const RowSource> source;  // of its plan
    std::span<const int64_t> slot;      // of its plan
    std::span<std::byte> rows;
  };
  /// Opens a batch for prefetching. Callable from any thread, also during a pause.
  void open(int64_t iteration, const Batch& batch);

  /// Stops copying until resume(). Throws the thread's error since the last call, or TimeoutError;
  /// there is no pause then. Blocks until the copy in flight has ended.
  void pause();
  void resume();

  /// For each position of a batch, 1 if its row has arrived; empty if the batch was not opened.
  /// Throws ArgumentError if it was opened with other memory than `rows`, or if the iteration is
  /// not after the one recorded last. Precondition: a pause.
  std::span<const uint8_t> arrived(int64_t iteration, std::span<const std::byte> rows) const;
  /// Records that plan `iteration` is replayed: closes its batch, and takes note of `moves` into
  /// the buffer; of two for one slot the last one counts. Precondition: a pause.
  void record(int64_t iteration, std::span<const VictimMoves> moves);

  /// Closes all batches, empties the buffer and forgets errors; iterations start over. Throws
  /// TimeoutError.
  void forget();

  /// Rows copied so far.
  int64_t num_copied() const;

 private:
  struct OpenBatch {
    Batch plan;
    size_t next = 0;               // the first unvisited of the slots tagged with it
    std::vector<uint8_t> arrived;  // by position
  };
  struct Copy {
    OpenBatch* batch;
    int64_t slot;
    int64_t position;
  };

  static uint16_t tag_of(int64_t iteration) { return static_cast<uint16_t>(iteration); }

  void stop_copying(std::unique_lock<std::mutex>& lock);
  void run();
  bool collect();
  void collect_from(int64_t iteration, OpenBatch& batch, const std::vector<int64_t>& slots);
  void copy() const;

  const Options options_;
  const std::byte* const rows_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // there may be work, or the end
  std::condition_variable idle_;  // nothing is copied
  bool is_paused_ = false;
  bool is_copying_ = false;
  bool is_stopping_ = false;
  std::exception_ptr error_;
  int64_t last_ = -1;            // the iteration replayed last
  std::vector<uint64_t> words_;  // by slot, of the row that entered it last
  std::unordered_map<uint16_t, std::vector<int64_t>> tagged_;  // slots by tag of the words
  std::map<int64_t, OpenBatch> batches_;                       // by iteration; none before last_
  int64_t num_copied_ = 0;

  std::vector<Copy> copies_;  // in flight; the thread's own
  std::thread thread_;
};

}  // namespace lsm
