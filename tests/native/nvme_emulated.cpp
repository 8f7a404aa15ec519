// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The queue code and the set-up of controllers against emulated ones: exits with 0 if all holds.
// Usage: nvme_emulated [reads per setting]
#include <atomic>

#include "kernels/core/check.h"
#include "kernels/io/nvme/emulated/transport.h"
#include "tests/native/nvme_checks.h"

using namespace lsm;
using namespace lsm::nvme;
using namespace lsm::nvme::checks;

namespace {

std::vector<std::byte> random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// Two namespaces of memory, one per format.
class Machine {
 public:
  explicit Machine(const DeviceOptions& options, double timeout_secs = 10.0)
      : first_(random_bytes(5 << 20, 1)), second_(random_bytes(1 << 20, 2)) {
    std::vector<EmulatedNamespace> namespaces = {{std::make_shared<MemoryBlocks>(first_), 512},
                                                 {std::make_shared<MemoryBlocks>(second_), 4096}};
    auto transport = std::make_unique<EmulatedTransport>("emulated", options, namespaces);
    device = &transport->device();
    controller = std::make_unique<Controller>(std::move(transport), timeout_secs);
    spaces = {{controller->identify_namespace(1), first_},
              {controller->identify_namespace(2), second_}};
  }

  const EmulatedDevice* device = nullptr;
  std::unique_ptr<Controller> controller;
  std::vector<KnownNamespace> spaces;

 private:
  const std::vector<std::byte> first_;
  const std::vector<std::byte> second_;
};

template <class Error, class Work>
std::string message_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "expected '%s' in '%s'\n", part, text.c_str());
  return false;
}

void check_prp_lengths() {
  EXPECT(num_list_pages(2) == 0 && num_list_pages(3) == 1);
  EXPECT(num_list_pages(513) == 1 && num_list_pages(514) == 2);
  EXPECT(num_list_pages(512 + 511 + 1) == 2 && num_list_pages(512 + 511 + 2) == 3);
}

void check_identification() {
  Machine machine({.max_transfer_shift = 5});
  const ControllerInfo& info = machine.controller->info();
  EXPECT(info.model == "LSM-GNN emulated controller" && info.version == 0x00010400);
  EXPECT(info.max_transfer_bytes == 128 << 10 && info.num_namespaces == 2);
  EXPECT(machine.spaces[0].info.block_bytes == 512);
  EXPECT(machine.spaces[0].info.num_blocks == (5 << 20) / 512);
  EXPECT(machine.spaces[1].info.block_bytes == 4096);
  EXPECT(contains(message_of<ArgumentError>([&] { machine.controller->identify_namespace(3); }),
                  "expected a namespace of 1 to 2, got 3"));
  EXPECT(machine.controller->set_num_queues(40) == 16);
}

void check_errors_of_set_up() {
  EXPECT(contains(message_of<TimeoutError>([] { Machine({.never_ready = true}, 0.1); }),
                  "did not report its start (CSTS.RDY = 1) within 0.5 s"));
  Machine machine({});
  const auto queue = machine.controller->create_queue(1, {});
  EXPECT(contains(message_of<std::runtime_error>([&] { machine.controller->create_queue(1, {}); }),
                  "cannot create completion queue 1"));
  EXPECT(contains(message_of<ArgumentError>([&] { machine.controller->create_queue(99, {}); }),
                  "queue 99 has no doorbell"));
}

/// A controller can be set up again and again, also after a queue was left with reads in flight.
void check_set_up_repeats() {
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
void check_shared_queue(size_t reads) {
  constexpr uint32_t kSubmitters = 4;
  constexpr uint32_t kSlots = 24;  // per submitter
  Machine machine({.faults = {.seed = 5, .reorder = true}});
  const auto queue = machine.controller->create_queue(1, {64, 128});
  const ReadBuffers buffers(machine.controller->transport(), kSubmitters * kSlots, kPageBytes);
  std::vector<std::atomic<int>> lbas(kSubmitters * kSlots);  // -1: free
  for (auto& lba : lbas) lba.store(-1);
  std::atomic<size_t> completed{0};
  const size_t each = reads / kSubmitters;

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
  EXPECT(machine.device->counters().reads.load() == static_cast<int64_t>(each * kSubmitters));
}

/// Doorbell writes per 1,000 reads, of both kinds.
void check_doorbells() {
  constexpr uint64_t kReads = 102'400;
  for (const Shape shape : {Shape::kContiguous, Shape::kSparse}) {
    Machine machine({});
    Reader reader(*machine.controller, 1, {1024, 16384}, 512);
    std::vector<Reader::Read> batch(shape == Shape::kContiguous ? 256 : 32,
                                    {&machine.spaces[0], {1, 1, 7}});
    for (uint64_t done = 0; done < kReads; done += batch.size()) {
      if (reader.room() < batch.size()) reader.complete(batch.size());
      reader.submit(batch, shape);
    }
    reader.complete(reader.queue().pair().capacity() - reader.room());
    const QueueState& state = reader.queue().state();
    const double per_thousand =
        1000.0 * static_cast<double>(state.tail_writes + state.head_writes) / kReads;
    EXPECT(per_thousand < (shape == Shape::kContiguous ? 4.0 : 40.0));
  }
}

/// Errors, delays and disorder: what completes well has the right bytes, the rest says why not.
void check_faults(size_t reads) {
  Machine machine({.faults = {.seed = 9,
                              .error_rate = 0.05,
                              .delay_rate = 0.02,
                              .delay_secs = 0.0005,
                              .reorder = true}});
  std::mt19937_64 random(11);
  Reader reader(*machine.controller, 1, {256, 512}, kPageBytes);
  for (size_t done = 0; done < reads; ++done) {
    if (reader.room() == 0) reader.complete(1 + random() % 255);
    const Reader::Read read = random_read(random, machine.spaces[0], 8);
    reader.submit({&read, 1}, Shape::kSparse);
  }
  reader.complete(255 - reader.room());
  EXPECT(static_cast<int64_t>(reader.num_errors()) == machine.device->counters().errors.load());
  EXPECT(reader.num_errors() > reads / 40 && reader.num_errors() < reads / 10);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t reads = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000;
  check_prp_lengths();
  check_identification();
  check_errors_of_set_up();
  check_set_up_repeats();
  for (const DeviceOptions& options :
       {DeviceOptions{.max_transfer_shift = 0},
        DeviceOptions{.max_queue_entries = 2048, .doorbell_stride_shift = 2},
        DeviceOptions{.faults = {.seed = 1, .reorder = true}}}) {
    Machine machine(options);
    check_controller(*machine.controller, machine.spaces, 16, reads);
    EXPECT(machine.device->counters().invalid_doorbells.load() == 0);
  }
  check_shared_queue(reads);
  check_doorbells();
  check_faults(reads);
  return 0;
}
