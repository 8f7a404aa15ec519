// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Feeds the emulated controller commands and doorbells that make no sense, and the completion path
// entries that no controller would write. Nothing may crash, hang, or be written outside of the
// memory that was given to the controller. With libFuzzer (-fsanitize=fuzzer -DLSM_FUZZER) the
// bytes come from it; else main() draws them from seeds. Usage: nvme_fuzz [inputs]
#include "kernels/io/nvme/emulated/transport.h"
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
    return std::make_unique<EmulatedTransport>("victim", DeviceOptions{},
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
    put(command, 6, address(input));
    put(command, 8, address(input));
    command.dwords[10] = input.take<uint8_t>();
    command.dwords[12] = input.take<uint16_t>() % 300;
    // PRP lists made of whatever is there.
    auto* list = reinterpret_cast<uint64_t*>(memory_.data);
    for (int i = 0; i < 8; ++i) list[input.take<uint16_t>() % 4096] = address(input);
    return command;
  }

  uint64_t address(Input& input) {
    const auto choice = input.take<uint8_t>();
    const uint64_t page = memory_.pages[choice % memory_.pages.size()];
    if (choice < 160) return page;
    if (choice < 220) return page + input.take<uint16_t>() % kPageBytes;
    return input.take<uint64_t>();
  }

  static void put(Command& command, size_t dword, uint64_t value) {
    command.dwords[dword] = static_cast<uint32_t>(value);
    command.dwords[dword + 1] = static_cast<uint32_t>(value >> 32);
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

void run_input(std::span<const uint8_t> bytes) {
  static Victim victim;
  victim.feed(Input(bytes));
  victim.check();
  feed_completions(Input(bytes));
}

void run_seeds() {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<uint8_t> bytes(static_cast<size_t>(random.between(64, 2000)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
    run_input(bytes);
  }
}

}  // namespace

std::vector<Test> nvme_fuzz_tests() {
  return {{"nvme: commands and completions that make no sense", run_seeds}};
}

#if defined(LSM_FUZZER)
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run_input({data, size});
  return 0;
}
#endif

}  // namespace lsm::testing
