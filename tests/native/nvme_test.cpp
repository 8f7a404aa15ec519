// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The queue code and the set-up of controllers, against emulated ones.
#include <doctest/doctest.h>
#include <atomic>

#include "kernels/core/check.h"
#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "tests/native/nvme_checks.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

using namespace lsm::nvme;
using namespace lsm::nvme::checks;

constexpr size_t kReads = 1000;  // per setting

std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Two namespaces of memory, one per format.
class Machine {
 public:
  explicit Machine(const ControllerOptions& options, double timeout_secs = 10.0)
      : first_(random_bytes(5 << 20, 1)), second_(random_bytes(1 << 20, 2)) {
    std::vector<EmulatedNamespace> namespaces = {{std::make_shared<MemoryBlocks>(first_), 512},
                                                 {std::make_shared<MemoryBlocks>(second_), 4096}};
    auto transport = std::make_unique<EmulatedTransport>("emulated", options, namespaces);
    played = &transport->controller();
    controller = std::make_unique<Controller>(std::move(transport), timeout_secs);
    spaces = {{controller->identify_namespace(1), first_},
              {controller->identify_namespace(2), second_}};
  }

  const EmulatedController* played = nullptr;
  std::unique_ptr<Controller> controller;
  std::vector<KnownNamespace> spaces;

 private:
  const std::vector<std::byte> first_;
  const std::vector<std::byte> second_;
};

TEST_CASE("nvme: pages of PRP lists") {
  EXPECT(num_list_pages(2) == 0 && num_list_pages(3) == 1);
  EXPECT(num_list_pages(513) == 1 && num_list_pages(514) == 2);
  EXPECT(num_list_pages(512 + 511 + 1) == 2 && num_list_pages(512 + 511 + 2) == 3);
}

TEST_CASE("nvme: identification") {
  Machine machine({.max_transfer_shift = 5});
  const ControllerInfo& info = machine.controller->info();
  EXPECT(info.model == "LSM-GNN emulated controller" && info.version == 0x00010400);
  EXPECT(info.max_transfer_bytes == 128 << 10 && info.num_namespaces == 2);
  EXPECT(machine.spaces[0].info.block_bytes == 512);
  EXPECT(machine.spaces[0].info.num_blocks == (5 << 20) / 512);
  EXPECT(machine.spaces[1].info.block_bytes == 4096);
  expect_throw<ArgumentError>("expected a namespace of 1 to 2, got 3",
                              [&] { machine.controller->identify_namespace(3); });
  EXPECT(machine.controller->set_num_queues(40) == 16);
}

TEST_CASE("nvme: errors of set-up") {
  expect_throw<TimeoutError>("did not report its start (CSTS.RDY = 1) within 0.5 s",
                             [] { Machine({.never_ready = true}, 0.1); });
  Machine machine({});
  const auto queue = machine.controller->create_queue(1, {});
  expect_throw<std::runtime_error>("cannot create completion queue 1",
                                   [&] { machine.controller->create_queue(1, {}); });
  expect_throw<ArgumentError>("queue 99 has no doorbell",
                              [&] { machine.controller->create_queue(99, {}); });
}

/// A controller can be set up again and again, also after a queue was left with reads in flight.
TEST_CASE("nvme: set-up repeats") {
  for (int round = 0; round < 3; ++round) {
    Machine machine({.faults = {.loss_rate = 1.0}});
    for (int again = 0; again < 3; ++again) {
      Reader reader(*machine.controller, 1, {8, 8}, kPageBytes);
      const Reader::Read read{&machine.spaces[0], {1, 1, 0}};
      reader.submit({&read, 1}, Shape::kSparse);
    }
  }
}

/// Submitters in several threads share a queue; one thread takes the completions.
TEST_CASE("nvme: a shared queue") {
  constexpr uint32_t kSubmitters = 4;
  constexpr uint32_t kSlots = 24;  // per submitter
  Machine machine({.faults = {.seed = 5, .reorder = true}});
  const auto queue = machine.controller->create_queue(1, {64, 128});
  const ReadBuffers buffers(machine.controller->transport(), kSubmitters * kSlots, kPageBytes);
  std::vector<std::atomic<int>> lbas(kSubmitters * kSlots);  // -1: free
  for (auto& lba : lbas) lba.store(-1);
  std::atomic<size_t> completed{0};
  const size_t each = kReads / kSubmitters;

  const auto submit = [&](uint32_t me) {
    std::mt19937_64 random(me);
    for (size_t left = each; left > 0;) {
      std::vector<uint16_t> ids;
      for (uint32_t i = 0; i < kSlots && ids.size() < left; ++i) {
        const auto id = static_cast<uint16_t>(me * kSlots + i);
        if (lbas[id].load(std::memory_order_acquire) < 0) ids.push_back(id);
      }
      for (const uint16_t id : ids) lbas[id].store(static_cast<int>(random() % 4096));
      const uint32_t done =
          submit_sparse(queue->pair(), static_cast<uint32_t>(ids.size()), [&](uint32_t i) {
            const auto lba = static_cast<uint64_t>(lbas[ids[i]].load());
            return ReadCommand::make(ids[i], {1, 1, lba}, buffers.pointer(ids[i], 512));
          });
      for (size_t i = done; i < ids.size(); ++i) lbas[ids[i]].store(-1);
      left -= done;
      if (done == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kSubmitters; ++i) threads.emplace_back(submit, i);
  Deadline deadline(60);
  while (completed.load() < each * kSubmitters) {
    EXPECT(!deadline.passed());
    const uint32_t taken = take_completions(queue->pair(), 1000, [&](const Completion& entry) {
      const uint16_t id = entry.command_id();
      EXPECT(entry.status() == kSuccess && lbas[id].load() >= 0);
      const std::byte* expected = machine.spaces[0].image.data() + lbas[id].load() * 512;
      EXPECT(std::memcmp(buffers.data(id), expected, 512) == 0);
      lbas[id].store(-1, std::memory_order_release);
      completed.fetch_add(1);
    });
    if (taken == 0) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(machine.played->counters().reads.load() == static_cast<int64_t>(each * kSubmitters));
}

/// An entry that comes while the ringer is about to let go is not left behind, although its
/// submitter finds the doorbell taken.
TEST_CASE("nvme: a late entry is rung") {
  std::vector<Command> submission(8);
  std::vector<uint32_t> published(8);
  uint32_t doorbells[2] = {};
  QueueState state{};
  const QueuePair pair{
      submission.data(), nullptr, &doorbells[0], &doorbells[1], published.data(), &state, 8, 8, 1};
  const auto add = [&] {
    const Tickets tickets = take_tickets(pair, 1);
    publish(pair, tickets.first, ReadCommand::make(0, {1, 1, 0}, {}));
  };
  add();
  int calls = 0;
  ring_published(pair, [&] {
    if (calls++ > 0) return;
    add();
    ring_published(pair);
    EXPECT(doorbells[0] == 1);
  });
  EXPECT(doorbells[0] == 2 && state.rung == 2 && state.ringing == 0);
}

/// Nothing but the queue orders submitters and whoever follows their doorbell: every entry is there
/// when it is rung for, none is rung for twice, none is left behind, and none is overwritten before
/// it was read (which the thread sanitizer sees).
TEST_CASE("nvme: a ring of many submitters") {
  constexpr uint32_t kSubmitters = 4;
  constexpr uint32_t kDepth = 4;  // often full, so that an entry left behind stops everybody
  constexpr uint64_t kEach = 8 * kReads;
  std::vector<Command> submission(kDepth);
  std::vector<uint32_t> published(kDepth);
  uint32_t doorbells[2] = {};
  QueueState state{};
  const QueuePair pair{submission.data(),
                       nullptr,
                       &doorbells[0],
                       &doorbells[1],
                       published.data(),
                       &state,
                       kDepth,
                       kDepth,
                       1};
  std::atomic<bool> failed{false};
  const auto submit = [&](uint16_t me) {
    for (uint64_t done = 0; done < kEach && !failed.load(std::memory_order_relaxed);) {
      const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(kEach - done, 1 + done % 3));
      const uint32_t count = submit_sparse(
          pair, wanted, [&](uint32_t i) { return ReadCommand::make(me, {1, 1, done + i}, {}); });
      done += count;
      if (count == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (uint16_t i = 0; i < kSubmitters; ++i) threads.emplace_back(submit, i);
  std::vector<uint64_t> next(kSubmitters);  // of each submitter
  uint64_t head = 0;
  Deadline deadline(30);
  while (head < kSubmitters * kEach && !failed.load()) {
    const uint32_t tail = load_acquire(doorbells[0]);
    if (tail == head % kDepth) {
      if (deadline.passed()) failed.store(true);
      std::this_thread::yield();
    }
    for (; tail != head % kDepth; ++head) {
      const Command entry = submission[head % kDepth];
      if (next.at(entry.dwords[0] >> 16)++ != entry.dwords[10]) failed.store(true);
    }
    finish_taking(pair, head);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(!failed.load());
}

/// Doorbell writes per 1,000 reads, of both kinds.
TEST_CASE("nvme: doorbells") {
  constexpr uint64_t kMany = 102'400;
  for (const Shape shape : {Shape::kContiguous, Shape::kSparse}) {
    Machine machine({});
    Reader reader(*machine.controller, 1, {1024, 16384}, 512);
    std::vector<Reader::Read> batch(shape == Shape::kContiguous ? 256 : 32,
                                    {&machine.spaces[0], {1, 1, 7}});
    for (uint64_t done = 0; done < kMany; done += batch.size()) {
      if (reader.room() < batch.size()) reader.complete(batch.size());
      reader.submit(batch, shape);
    }
    reader.complete(reader.queue().pair().capacity() - reader.room());
    const QueueState& state = reader.queue().state();
    const double per_thousand =
        1000.0 * static_cast<double>(state.tail_writes + state.head_writes) / kMany;
    EXPECT(per_thousand < (shape == Shape::kContiguous ? 4.0 : 40.0));
  }
}

/// Errors, delays and disorder: what completes well has the right bytes, the rest says why not.
TEST_CASE("nvme: faults") {
  Machine machine({.faults = {.seed = 9,
                              .error_rate = 0.05,
                              .delay_rate = 0.02,
                              .delay_secs = 0.0005,
                              .reorder = true}});
  std::mt19937_64 random(11);
  Reader reader(*machine.controller, 1, {256, 512}, kPageBytes);
  for (size_t done = 0; done < kReads; ++done) {
    if (reader.room() == 0) reader.complete(1 + random() % 255);
    const Reader::Read read = random_read(random, machine.spaces[0], 8);
    reader.submit({&read, 1}, Shape::kSparse);
  }
  reader.complete(255 - reader.room());
  EXPECT(static_cast<int64_t>(reader.num_errors()) == machine.played->counters().errors.load());
  EXPECT(reader.num_errors() > kReads / 40 && reader.num_errors() < kReads / 10);
}

TEST_CASE("nvme: reads through every kind of controller") {
  for (const ControllerOptions& options :
       {ControllerOptions{.max_transfer_shift = 0},
        ControllerOptions{.max_queue_entries = 2048, .doorbell_stride_shift = 2},
        ControllerOptions{.faults = {.seed = 1, .reorder = true}}}) {
    Machine machine(options);
    check_controller(*machine.controller, machine.spaces, 16, kReads);
    EXPECT(machine.played->counters().invalid_doorbells.load() == 0);
  }
}

}  // namespace

}  // namespace lsm::testing
