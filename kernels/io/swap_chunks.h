// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lsm {

/// A block of memory to write to one place of a file, and then to fill from another.
struct Swap {
  std::byte* memory = nullptr;
  int64_t bytes = 0;
  std::optional<int64_t> write_to;   // offset in the file
  std::optional<int64_t> read_from;  // offset in the file
  int64_t first_page = 0;            // of the memory in a larger block, for the checksums
};

/// Checksums of the bytes written and read; 0 for a transfer that was not requested.
struct SwapSums {
  uint64_t written = 0;
  uint64_t read = 0;
};

/// One chunk of a swap: first written, then read.
struct SwapChunk {
  int64_t index = 0;
  bool writes = false;  // its current transfer
  std::byte* memory = nullptr;
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t done = 0;         // bytes of the current transfer
  bool was_futile = false;  // its last result was less than a block

  std::byte* address() const { return memory + done; }
  int64_t position() const { return offset + done; }
  int64_t bytes_left() const { return bytes - done; }
};

/// The chunks of one swap: their order of transfers, and the handling of results. Threads may share
/// it; each chunk belongs to one thread at a time.
class SwapChunks {
 public:
  /// `target`: the path of the file or drive, for messages.
  SwapChunks(const Swap& swap, int64_t chunk_bytes, int64_t block_bytes, std::string target);

  int64_t count() const { return count_; }
  /// The first transfer of chunk `index`, ready for submission.
  SwapChunk start(int64_t index);
  /// Accounts for a transfer that returned `result` (bytes, or -errno). Returns true if the chunk
  /// must be submitted again: for the rest of a short transfer, or for the read after the write.
  /// Returns false if the chunk is done, or it or another has failed.
  bool advance(SwapChunk& chunk, int64_t result);
  bool failed() const { return failed_.load(); }
  /// Keeps the first error.
  void fail(std::exception_ptr error);
  /// Sums of all chunks; throws the first error.
  SwapSums finish() const;

 private:
  void begin(SwapChunk& chunk, bool writes);
  uint64_t sum(const SwapChunk& chunk) const;

  const Swap swap_;
  const int64_t chunk_bytes_;
  const int64_t block_bytes_;
  const int64_t count_;
  const std::string target_;
  std::vector<SwapSums> sums_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace lsm
