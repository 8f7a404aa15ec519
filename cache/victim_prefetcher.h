// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The host thread that copies rows out of the victim buffer before they are asked for (LSM-GNN,
// section 4.3: while the model trains). The metadata word of a row says which batch it goes to and
// where, so that nothing is searched.
//
// Who may touch what: while replays are paused for, which is from pause() to resume(), the caller
// owns the victim buffer and every batch; in between the thread reads victim slots and writes the
// positions of open batches that their plans serve from these very slots. No plan before that of a
// batch writes a slot that the batch is served from (its row stays until then), and neither storage
// nor a replay writes such a position earlier; so whatever was copied is what replaying the plan
// would copy, and what was not copied in time is copied by the replay, before its own evictions
// may write the slot again.
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

#include "cache/plan_moves.h"

namespace lsm {

class VictimPrefetcher {
 public:
  struct Options {
    int64_t num_slots = 0;
    int64_t row_bytes = 0;
    int64_t iterations = 0;   // how many ahead of the last replay are prefetched; 0: none
    double timeout_secs = 0;  // of the wait for a copy that is under way
  };

  /// `rows` are those of the victim buffer. No thread is started if there is nothing to do for it.
  VictimPrefetcher(const Options& options, const std::byte* rows);
  /// Ends the thread, after the few rows that it may be copying.
  ~VictimPrefetcher();
  VictimPrefetcher(const VictimPrefetcher&) = delete;
  VictimPrefetcher& operator=(const VictimPrefetcher&) = delete;

  /// Where the rows of a coming iteration go. The memory stays valid until its replay is recorded
  /// or everything is forgotten.
  struct Batch {
    std::span<const uint8_t> source;  // of its plan
    std::span<const int64_t> slot;    // of its plan
    std::span<std::byte> rows;
  };
  /// From any thread, also during a pause.
  void open(int64_t iteration, const Batch& batch);

  /// Waits until nothing is copied, and keeps it so until resume(). Throws what went wrong in the
  /// thread since, or TimeoutError; then there is no pause.
  void pause();
  void resume();

  /// During a pause: for each position of a batch whether its row is there; empty if the batch was
  /// not opened. Throws ArgumentError if it was opened with other memory than `rows`, or if the
  /// iteration is not after the one recorded last.
  std::span<const uint8_t> arrived(int64_t iteration, std::span<const std::byte> rows) const;
  /// During a pause: plan `iteration` is replayed, its batch is closed, and `moves` are in the
  /// buffer; of two for one slot the last one counts.
  void record(int64_t iteration, std::span<const VictimMoves> moves);

  /// Closes all batches, empties the buffer and forgets what went wrong; iterations start anew.
  /// Throws TimeoutError.
  void forget();

  /// Rows copied so far.
  int64_t num_copied() const;

 private:
  struct OpenBatch {
    Batch plan;
    size_t next = 0;               // of the slots tagged with it, the first not looked at
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
  std::condition_variable wake_;  // there may be work, or an end
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

  std::vector<Copy> copies_;  // under way; the thread's own
  std::thread thread_;
};

}  // namespace lsm
