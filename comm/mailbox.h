// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Short messages between two processes of one machine, without a socket and without threads that
// carry them: what a message costs is a copy of its words, and a system call that wakes whoever
// waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lsm::comm {

/// One direction of messages: a ring in memory that the writer and the reader have both mapped, one
/// thread at a time on either side. A message is some 64-bit words. The ring is usable when it is
/// all zeros, and what was written stays readable when the writer's process has ended.
///
/// Positions count words, modulo 2^32. The writer owns `written`, the reader `read`.
///  - `written` is stored with release after a message's words, and loaded with acquire before they
///    are read: so the reader sees the words, and whatever the writer did before, such as filling
///    other shared memory that the message is about.
///  - `read` is stored with release after the words were copied out, and loaded with acquire before
///    their place is written again: so the copy is done by then.
///  - Nobody sleeps through a message: the futex compares the position with what the sleeper saw
///    and puts it to sleep in one step, and the other side stores before it wakes.
class Mailbox {
 public:
  /// Memory that a ring takes, a multiple of a cache line.
  static size_t num_bytes();
  /// The most words that one message has.
  static size_t max_words();

  /// A view of the ring at `memory`, which is aligned to a cache line and outlives this.
  explicit Mailbox(std::byte* memory);

  /// False if there is no room, before anything is written. Throws ArgumentError for a message that
  /// is empty or longer than max_words().
  bool write(std::span<const int64_t> words);
  /// The next message; empty if there is none. Throws std::runtime_error if the ring is corrupt.
  std::vector<int64_t> read();

  /// Waits until there is a message; false if `secs` have passed first.
  bool wait_written(double secs);
  /// Waits until the reader has all that was written; false if `secs` have passed first.
  bool wait_read(double secs);

 private:
  struct Ring;
  Ring* ring_;
};

}  // namespace lsm::comm
