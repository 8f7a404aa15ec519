// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Feeds the emulated controller commands, admin commands, registers and doorbells that make no
// sense, and the completion path entries that no controller would write. Nothing may crash, hang,
// or be written outside of the memory that was given to the controller. The bytes come from
// libFuzzer where LSM_FUZZER is defined (`make fuzz`), else from seeds.
#include <doctest/doctest.h>

#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "tests/native/nvme_checks.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

using namespace lsm::nvme;
using namespace lsm::nvme::checks;

/// Takes numbers from an input, and zeros when it is used up.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  template <class T>
  T take() {
    T value{};
    const size_t count = std::min(sizeof(T), bytes_.size());
    std::memcpy(&value, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
};

/// A page of `memory`, with or without an offset into it, or no address of the controller's: what
/// it reads must not land on the queues of the test.
uint64_t draw_address(Input& input, const DmaMemory& memory) {
  const auto choice = input.take<uint8_t>();
  const uint64_t page = memory.pages[choice % memory.pages.size()];
  if (choice < 160) return page;
  if (choice < 220) return page + input.take<uint16_t>() % kPageBytes;
  return input.take<uint64_t>() | uint64_t{1} << 63;
}

void put(Command& command, size_t dword, uint64_t value) {
  command.dwords[dword] = static_cast<uint32_t>(value);
  command.dwords[dword + 1] = static_cast<uint32_t>(value >> 32);
}

/// A controller that goes on over all inputs, as one that was fed nonsense must.
class Victim {
 public:
  Victim()
      : image_(64 << 10, std::byte{0x5a}),
        controller_(make_transport()),
        space_{controller_.identify_namespace(1), image_},
        queue_(controller_.create_queue(2, {32, 32})),
        memory_(controller_.transport().allocate(8 * kPageBytes, DmaShape::kPages)),
        positions_(queue_->pair().state->tickets) {}

  void feed(Input input) {
    std::memset(memory_.data, 0, memory_.bytes);  // so that an input does the same every time
    while (!input.empty()) {
      const Command command = make_command(input);
      const QueuePair& pair = queue_->pair();
      pair.submission[positions_ & (pair.depth - 1)] = command;
      pair.state->tickets = ++positions_;
      if (input.take<uint8_t>() % 8 == 0) {
        // A tail that the queue cannot have is to be ignored.
        write_doorbell(pair.tail_doorbell, pair.depth + input.take<uint16_t>());
      }
      pair.ring_tail(positions_);
      expect_answer(static_cast<uint16_t>(command.dwords[0] >> 16));
    }
  }

  /// It still reads right.
  void check() {
    Reader reader(controller_, 1, {8, 8}, kPageBytes);
    const Reader::Read read{&space_, {1, 8, 3}};
    reader.submit({&read, 1}, Shape::kContiguous);
    reader.complete(1);
    EXPECT(reader.num_errors() == 0);
  }

 private:
  std::unique_ptr<Transport> make_transport() {
    auto source = std::make_shared<MemoryBlocks>(image_);
    return std::make_unique<EmulatedTransport>("victim", ControllerOptions{},
                                               std::vector<EmulatedNamespace>{{source, 512}});
  }

  /// Half random, half near what is right, so that more than the first check is reached.
  Command make_command(Input& input) {
    Command command{};
    if (input.take<uint8_t>() % 4 == 0) {
      for (uint32_t& dword : command.dwords) dword = input.take<uint32_t>();
      return command;
    }
    command.dwords[0] = kOpcodeRead | static_cast<uint32_t>(input.take<uint16_t>()) << 16;
    command.dwords[1] = 1 + input.take<uint8_t>() % 2;
    put(command, 6, draw_address(input, memory_));
    put(command, 8, draw_address(input, memory_));
    command.dwords[10] = input.take<uint8_t>();
    command.dwords[12] = input.take<uint16_t>() % 300;
    // PRP lists made of whatever is there.
    auto* list = reinterpret_cast<uint64_t*>(memory_.data);
    for (int i = 0; i < 8; ++i) list[input.take<uint16_t>() % 4096] = draw_address(input, memory_);
    return command;
  }

  void expect_answer(uint16_t id) {
    const Deadline deadline(10);
    Backoff backoff;
    while (take_completions(queue_->pair(), 1, [&](const Completion& entry) {
             EXPECT(entry.command_id() == id);
           }) == 0) {
      EXPECT(!deadline.passed());
      backoff.pause();
    }
  }

  std::vector<std::byte> image_;
  Controller controller_;
  const KnownNamespace space_;
  std::unique_ptr<IoQueue> queue_;
  const DmaMemory memory_;
  uint64_t positions_;
};

/// A controller whose registers, admin queue and doorbells are fed nonsense: it answers every admin
/// command, and does what its configuration register says.
class AdminVictim {
 public:
  AdminVictim()
      : image_(64 << 10, std::byte{0x5a}),
        device_({.num_queues = 4, .max_queue_entries = 128},
                {{std::make_shared<MemoryBlocks>(image_), 512}}),
        submission_(device_.memory().allocate(kPageBytes, DmaShape::kContiguous)),
        completion_(device_.memory().allocate(kPageBytes, DmaShape::kContiguous)),
        memory_(device_.memory().allocate(4 * kPageBytes, DmaShape::kContiguous)) {}

  void feed(Input input) {
    fill_memory(input.take<uint16_t>());
    if (input.take<uint8_t>() % 4 == 0) start_badly(input);
    start();
    for (uint32_t position = 0; !input.empty(); ++position) {
      execute(position, make_command(input));
      const uint32_t doorbell = kDoorbells + 8 + 4 * (input.take<uint8_t>() % 8);
      if (input.take<uint8_t>() % 2 == 0) write(doorbell, input.take<uint8_t>());
    }
    stop();
  }

 private:
  static constexpr uint32_t kDepth = 32;

  /// Queues that are made of this memory find commands in it, most of them right.
  void fill_memory(uint64_t seed) {
    Random random(seed);
    auto* commands = reinterpret_cast<Command*>(memory_.data);
    for (uint32_t i = 0; i < memory_.bytes / sizeof(Command); ++i) {
      Command& command = commands[i] = {};
      command.dwords[0] = (random.chance(90) ? kOpcodeRead : 3) | i % 100 << 16;
      command.dwords[1] = random.chance(90) ? 1 : 2;
      put(command, 6, random.pick(memory_.pages));
      put(command, 8, random.pick(memory_.pages));
      command.dwords[10] = static_cast<uint32_t>(random.between(0, 130));
      command.dwords[12] = static_cast<uint32_t>(random.between(0, 40));
    }
  }
  void write(uint32_t offset, uint32_t value) {
    write_doorbell(device_.registers() + offset / 4, value);
  }
  void write_address(uint32_t offset, uint64_t address) {
    write(offset, static_cast<uint32_t>(address));
    write(offset + 4, static_cast<uint32_t>(address >> 32));
  }
  template <class Holds>
  void await_status(Holds&& holds) {
    const Deadline deadline(10);
    Backoff backoff;
    while (!holds(load_acquire(device_.registers()[kStatusRegister / 4]))) {
      EXPECT(!deadline.passed());
      backoff.pause();
    }
  }

  /// Whatever it is enabled with, it says how that went.
  void start_badly(Input& input) {
    write(kAdminQueueAttributes, input.take<uint32_t>());
    write_address(kAdminSubmissionBase, draw_address(input, memory_));
    write_address(kAdminCompletionBase, draw_address(input, memory_));
    const uint32_t configuration = input.take<uint8_t>() % 2 == 0
                                       ? kConfigurationEntrySizes | input.take<uint16_t>()
                                       : input.take<uint32_t>();
    write(kConfiguration, kConfigurationEnable | configuration);
    await_status([](uint32_t status) { return status != 0; });
    stop();
  }
  void start() {
    std::memset(completion_.data, 0, completion_.bytes);
    write(kAdminQueueAttributes, (kDepth - 1) | (kDepth - 1) << 16);
    write_address(kAdminSubmissionBase, submission_.address(0));
    write_address(kAdminCompletionBase, completion_.address(0));
    write(kConfiguration, kConfigurationEnable | kConfigurationEntrySizes);
    await_status([](uint32_t status) { return status == kStatusReady; });
  }
  void stop() {
    write(kConfiguration, 0);
    await_status([](uint32_t status) { return status == 0; });
  }

  Command make_command(Input& input) {
    Command command{};
    constexpr uint8_t kOpcodes[] = {0, 1, 1, 4, 5, 5, 6, 9};
    const auto choice = input.take<uint8_t>();
    command.dwords[0] = choice < 200 ? kOpcodes[choice % std::size(kOpcodes)] : choice;
    command.dwords[1] = input.take<uint8_t>() % 3;
    put(command, 6, draw_address(input, memory_));
    if (choice % 16 == 0) {
      for (int i = 10; i < 16; ++i) command.dwords[i] = input.take<uint32_t>();
      return command;
    }
    command.dwords[10] = input.take<uint8_t>() % 6;
    command.dwords[10] |= (input.take<uint8_t>() % 160) << 16;
    command.dwords[11] = input.take<uint8_t>() % 8 == 0 ? 0 : 1;
    command.dwords[11] |= (input.take<uint8_t>() % 6) << 16;
    return command;
  }

  void execute(uint32_t position, const Command& request) {
    const uint32_t id = position & 0xffff;
    Command command = request;
    command.dwords[0] |= id << 16;
    reinterpret_cast<Command*>(submission_.data)[position % kDepth] = command;
    write(kDoorbells, (position + 1) % kDepth);
    Completion& answer = reinterpret_cast<Completion*>(completion_.data)[position % kDepth];
    const Deadline deadline(10);
    Backoff backoff;
    const uint32_t phase = (position / kDepth & 1) ^ 1;
    while ((load_acquire(answer.dwords[3]) >> 16 & 1) != phase) {
      EXPECT(!deadline.passed());
      backoff.pause();
    }
    EXPECT(answer.command_id() == id && answer.submission_queue() == 0);
    write(kDoorbells + 4, (position + 1) % kDepth);
  }

  const std::vector<std::byte> image_;
  EmulatedController device_;
  const DmaMemory submission_;
  const DmaMemory completion_;
  const DmaMemory memory_;
};

/// Entries of any content: no more are taken than there are, and none twice.
void feed_completions(Input input) {
  std::vector<Completion> entries(16);
  std::vector<uint32_t> published(16);
  uint32_t doorbells[2] = {};
  QueueState state{};
  const QueuePair pair{
      nullptr, entries.data(), &doorbells[0], &doorbells[1], published.data(), &state, 16, 16, 1};
  uint64_t taken = 0;
  while (!input.empty()) {
    for (Completion& entry : entries) {
      for (uint32_t& dword : entry.dwords) dword = input.take<uint32_t>();
    }
    const uint32_t limit = input.take<uint8_t>() % 40;
    uint32_t visited = 0;
    const uint32_t count = take_completions(pair, limit, [&](const Completion& entry) {
      ++visited;
      EXPECT(!describe_status(entry.status()).empty());
    });
    EXPECT(count == visited && count <= limit);
    taken += count;
    EXPECT(state.consumed == taken);
    EXPECT(doorbells[1] == (taken & 15));
  }
}

/// The first byte says which of them gets the rest.
void run_input(std::span<const uint8_t> bytes) {
  static Victim victim;
  static AdminVictim admin_victim;
  Input input(bytes);
  switch (input.take<uint8_t>() % 4) {
    case 0:
      return feed_completions(input);
    case 1:
      return admin_victim.feed(input);
    default:
      victim.feed(input);
      victim.check();
  }
}

TEST_CASE("nvme: commands and completions that make no sense") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<uint8_t> bytes(static_cast<size_t>(random.between(64, 2000)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
    run_input(bytes);
  }
}

}  // namespace

#if defined(LSM_FUZZER)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run_input({data, size});
  return 0;
}
#endif

}  // namespace lsm::testing
