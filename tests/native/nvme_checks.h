// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Checks of reads through any controller whose namespaces' bytes are known: run against
// the emulated controller (nvme_test.cpp), over libnvm played (nvme_transport_test.cpp), and
// against QEMU's (tests/guest).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/core/deadline.h"
#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/read_buffers.h"
#include "kernels/io/nvme/protocol/status.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/contiguous.h"
#include "kernels/io/nvme/queue/sparse.h"

#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

namespace lsm::nvme::checks {

/// A namespace and the bytes that it is known to hold.
struct KnownNamespace {
  NamespaceInfo info;
  std::span<const std::byte> image;
};

enum class Shape { kContiguous, kSparse };

/// Reads of one queue, each in a buffer of its own, checked against the image as they complete.
class Reader {
 public:
  Reader(Controller& controller, uint16_t queue, const QueueOptions& options, size_t max_bytes)
      : queue_(controller.create_queue(queue, options)),
        buffers_(controller.transport(), queue_->pair().capacity(), max_bytes),
        reads_(queue_->pair().capacity()) {
    for (uint32_t i = 0; i < reads_.size(); ++i) free_.push_back(static_cast<uint16_t>(i));
  }

  ~Reader() {
    // Before the buffers, into which the controller may still be writing.
    queue_.reset();
  }

  struct Read {
    const KnownNamespace* space = nullptr;
    BlockRange blocks{};
  };

  IoQueue& queue() { return *queue_; }
  size_t room() const { return free_.size(); }
  uint64_t num_errors() const { return num_errors_; }
  uint16_t last_status() const { return last_status_; }

  /// Submits all of `reads`, for which there is room.
  void submit(std::span<const Read> reads, Shape shape) {
    std::vector<uint16_t> ids;
    for (const Read& read : reads) {
      const uint16_t id = free_.back();
      free_.pop_back();
      reads_[id] = read;
      std::memset(buffers_.data(id), 0xee, bytes_of(read));
      ids.push_back(id);
    }
    const auto make = [&](uint32_t i) {
      return ReadCommand::make(ids[i], reads[i].blocks,
                               buffers_.pointer(ids[i], bytes_of(reads[i])));
    };
    const auto count = static_cast<uint32_t>(reads.size());
    const QueuePair& pair = queue_->pair();
    EXPECT((shape == Shape::kSparse ? submit_sparse(pair, count, make)
                                    : submit_batch(pair, count, make)) == count);
  }

  /// Takes completions until `count` have come. `seconds`: how long none may come.
  void complete(size_t count, double seconds = 20.0) {
    Deadline deadline(seconds);
    Backoff backoff;
    while (count > 0) {
      const uint32_t taken = take_completions(queue_->pair(), static_cast<uint32_t>(count),
                                              [&](const Completion& entry) { check(entry); });
      count -= taken;
      if (taken == 0) {
        EXPECT(!deadline.passed());
        backoff.pause();
      } else {
        deadline = Deadline(seconds);
        backoff.reset();
      }
    }
  }

 private:
  static size_t bytes_of(const Read& read) {
    return size_t{read.blocks.num_blocks} * read.space->info.block_bytes;
  }

  void check(const Completion& entry) {
    const uint16_t id = entry.command_id();
    EXPECT(id < reads_.size() && reads_[id].space != nullptr);
    const Read read = reads_[id];
    EXPECT(entry.submission_queue() == queue_->pair().id);
    EXPECT(entry.submission_head() < queue_->pair().depth);
    last_status_ = entry.status();
    if (entry.status() != kSuccess) {
      ++num_errors_;
    } else {
      const std::byte* expected =
          read.space->image.data() + read.blocks.lba * read.space->info.block_bytes;
      EXPECT(std::memcmp(buffers_.data(id), expected, bytes_of(read)) == 0);
    }
    reads_[id] = {};
    free_.push_back(id);
  }

  std::unique_ptr<IoQueue> queue_;
  ReadBuffers buffers_;
  std::vector<Read> reads_;
  std::vector<uint16_t> free_;
  uint64_t num_errors_ = 0;
  uint16_t last_status_ = 0;
};

inline Reader::Read random_read(std::mt19937_64& random, const KnownNamespace& space,
                                uint32_t max_blocks) {
  const auto num_blocks = static_cast<uint32_t>(1 + random() % max_blocks);
  const uint64_t lba = random() % (space.info.num_blocks - num_blocks + 1);
  return {&space, {space.info.id, num_blocks, lba}};
}

/// `count` random reads on one queue of `depth` entries, many laps of it, in groups of random size.
inline void check_random_reads(Controller& controller, std::span<const KnownNamespace> spaces,
                               const QueueOptions& options, Shape shape, size_t count,
                               uint16_t queue = 1) {
  constexpr size_t kMaxBytes = 32 << 10;
  std::mt19937_64 random(options.depth * 2 + static_cast<unsigned>(shape));
  Reader reader(controller, queue, options, kMaxBytes);
  const size_t capacity = reader.room();
  std::vector<Reader::Read> group;
  while (count > 0) {
    group.clear();
    const size_t most = std::min(count, reader.room());
    for (size_t n = 1 + random() % most; n > 0; --n) {
      const KnownNamespace& space = spaces[random() % spaces.size()];
      const auto max_blocks = static_cast<uint32_t>(kMaxBytes / space.info.block_bytes);
      group.push_back(random_read(random, space, max_blocks));
    }
    reader.submit(group, shape);
    count -= group.size();
    // Most often some stay in flight, so that batches overlap.
    const size_t in_flight = capacity - reader.room();
    reader.complete(reader.room() == 0 ? 1 + random() % in_flight : random() % (in_flight + 1));
  }
  reader.complete(capacity - reader.room());
  EXPECT(reader.num_errors() == 0);
}

/// Transfers of every length around the limits of PRPs: one page, two, a list, a full list page, a
/// chain of two.
inline void check_transfer_lengths(Controller& controller, const KnownNamespace& space) {
  const uint64_t most =
      std::min<uint64_t>(controller.info().max_transfer_bytes, space.info.bytes());
  Reader reader(controller, 1, {4, 4}, most);
  for (const uint64_t pages : {0, 1, 2, 3, 16, 511, 512, 513, 514, 1023, 1024, 1025}) {
    for (const int64_t more : {-1, 0, 1}) {
      const int64_t blocks =
          static_cast<int64_t>(pages * kPageBytes / space.info.block_bytes) + more;
      if (blocks < 1 || static_cast<uint64_t>(blocks) * space.info.block_bytes > most) continue;
      const auto count = static_cast<uint32_t>(blocks);
      const Reader::Read read{&space, {space.info.id, count, space.info.num_blocks - count}};
      reader.submit({&read, 1}, Shape::kContiguous);
      reader.complete(1);
    }
  }
  EXPECT(reader.num_errors() == 0);
}

/// A read that begins or ends past the last block fails with a status that says so, and the queue
/// goes on.
inline void check_out_of_range(Controller& controller, const KnownNamespace& space) {
  Reader reader(controller, 1, {8, 8}, 4 * kPageBytes);
  const uint64_t end = space.info.num_blocks;
  uint64_t expected_errors = 0;
  for (const BlockRange blocks :
       {BlockRange{space.info.id, 1, end}, BlockRange{space.info.id, 2, end - 1},
        BlockRange{space.info.id, 1, ~uint64_t{0}}, BlockRange{space.info.id, 1, end - 1}}) {
    const Reader::Read read{&space, blocks};
    reader.submit({&read, 1}, Shape::kContiguous);
    reader.complete(1);
    if (blocks.lba + blocks.num_blocks == end) break;
    ++expected_errors;
    EXPECT((reader.last_status() & kStatusCodeMask) == kLbaOutOfRange);
    EXPECT(describe_status(reader.last_status()).find("LBA out of range") == 0);
  }
  EXPECT(reader.num_errors() == expected_errors && expected_errors == 3);
}

/// `num_queues` queues, each with a thread of its own.
inline void check_many_queues(Controller& controller, std::span<const KnownNamespace> spaces,
                              uint32_t num_queues, size_t reads_per_queue) {
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i <= num_queues; ++i) {
    const Shape shape = i % 2 == 0 ? Shape::kSparse : Shape::kContiguous;
    threads.emplace_back([&controller, spaces, i, shape, reads_per_queue] {
      check_random_reads(controller, spaces, {32, 64}, shape, reads_per_queue,
                         static_cast<uint16_t>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Everything above, on a controller of at least `num_queues` queues.
inline void check_controller(Controller& controller, std::span<const KnownNamespace> spaces,
                             uint32_t num_queues, size_t reads) {
  EXPECT(controller.set_num_queues(num_queues) == num_queues);
  for (const KnownNamespace& space : spaces) {
    check_transfer_lengths(controller, space);
    check_out_of_range(controller, space);
  }
  for (const uint32_t depth : {2u, 4u, 64u, 1024u}) {
    for (const Shape shape : {Shape::kContiguous, Shape::kSparse}) {
      check_random_reads(controller, spaces, {depth, depth}, shape, reads);
    }
  }
  check_random_reads(controller, spaces, {32, 512}, Shape::kContiguous, reads);
  for (uint32_t count = 1; count <= num_queues; count *= 2) {
    check_many_queues(controller, spaces, count, reads / count);
  }
}

}  // namespace lsm::nvme::checks
