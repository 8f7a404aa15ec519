// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Short messages between two processes of one machine, without a socket and without carrier
// threads. A message costs a copy of its words, and a system call that wakes a waiting reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lsm::comm {

/// One direction of messages: a ring in memory that the writer and the reader have both mapped, one
/// thread at a time on either side. A message is a number of 64-bit words. A ring of zeros is valid
/// and empty. Messages stay readable after the writer's process has ended.
///
/// Positions count words, modulo 2^32. The writer owns `written`, the reader `read`.
///  - `written` is stored with release after a message's words, and loaded with acquire before they
///    are read: so the reader sees the words and all earlier writes of the writer, such as those to
///    other shared memory that the message is about.
///  - `read` is stored with release after the words were copied out, and loaded with acquire before
///    their place is written again: so the copy is done by then.
///  - No message is missed: the futex compares the position with the value that the sleeper saw and
///    puts it to sleep in one step, and the other side stores before it wakes.
class Mailbox {
 public:
  /// Memory that a ring takes, a multiple of a cache line.
  static size_t num_bytes();
  /// Most words of one message.
  static size_t max_words();

  /// A view of the ring at `memory`, which is aligned to a cache line and outlives this.
  explicit Mailbox(std::byte* memory);

  /// Returns false, and writes nothing, if there is no room. Throws ArgumentError for a message
  /// that is empty or longer than max_words().
  bool write(std::span<const int64_t> words);
  /// The next message; empty if there is none. Throws std::runtime_error if the ring is corrupt.
  std::vector<int64_t> read();

  /// Blocks until there is a message; returns false after `secs`.
  bool wait_written(double secs);
  /// Blocks until the reader has read all messages; returns false after `secs`.
  bool wait_read(double secs);

 private:
  struct Ring;
  Ring* ring_;
};

}  // namespace lsm::comm
