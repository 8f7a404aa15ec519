// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Messages between two threads that have the same memory mapped at two addresses, as two processes
// would.
#include <doctest/doctest.h>
#include <thread>

#include "comm/mailbox.h"
#include "comm/shared_memory.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

using comm::Mailbox;

constexpr int64_t kNumMessages = 20'000;  // many times around the ring

/// Message `number`: its length and words follow from its number.
std::vector<int64_t> message_of(int64_t number) {
  Random random(static_cast<uint64_t>(number));
  const int64_t longest = number % 100 == 0 ? static_cast<int64_t>(Mailbox::max_words()) : 12;
  std::vector<int64_t> words(static_cast<size_t>(random.between(1, longest)));
  for (int64_t& word : words) word = static_cast<int64_t>(random.next());
  return words;
}

/// The address of the ring at two places of this process. The thread sanitizer sees two memories:
/// what the words and positions need is checked where threads share a ring.
struct TwoViews {
  comm::SharedBlock block{Mailbox::num_bytes()};
  comm::Mapping other{block.descriptor(), block.capacity()};
};

void exchange(std::byte* writers, std::byte* readers) {
  std::string error;
  std::thread writer([writers, &error] {
    Mailbox mailbox(writers);
    for (int64_t number = 0; number < kNumMessages; ++number) {
      while (!mailbox.write(message_of(number))) {
        if (!mailbox.wait_read(kTimeoutSecs)) error = "the reader has stopped";
        if (!error.empty()) return;
      }
    }
    if (!mailbox.wait_read(kTimeoutSecs)) error = "the last message was not read";
  });
  Mailbox mailbox(readers);
  int64_t number = 0;
  for (; number < kNumMessages && mailbox.wait_written(kTimeoutSecs); ++number) {
    if (mailbox.read() != message_of(number)) break;
  }
  // Lets a writer that waits for room go on to its end.
  while (number < kNumMessages && mailbox.wait_written(0.5)) mailbox.read();
  writer.join();
  LSM_EXPECT(error.empty(), error);
  LSM_EXPECT(number == kNumMessages, "message ", number, " is another one, or did not come");
}

TEST_CASE("mailbox: threads share a ring") {
  comm::SharedBlock block(Mailbox::num_bytes());
  exchange(block.data(), block.data());
}

TEST_CASE("mailbox: wakes through another mapping") {
  TwoViews views;
  exchange(views.block.data(), views.other.data());
}

/// Memory that a message is about is seen by who reads the message.
TEST_CASE("mailbox: a message publishes other memory") {
  comm::SharedBlock block(Mailbox::num_bytes()), back(Mailbox::num_bytes());
  std::vector<int64_t> values(64);
  std::thread writer([&] {
    Mailbox mailbox(block.data()), answers(back.data());
    for (int64_t round = 1; round <= 2000; ++round) {
      for (int64_t& value : values) value = round;
      mailbox.write(std::vector<int64_t>{round});
      if (!answers.wait_written(kTimeoutSecs)) return;
      answers.read();
    }
  });
  Mailbox mailbox(block.data()), answers(back.data());
  bool same = true;
  for (int64_t round = 1; round <= 2000 && mailbox.wait_written(kTimeoutSecs); ++round) {
    same &= mailbox.read() == std::vector<int64_t>{round};
    for (const int64_t value : values) same &= value == round;
    answers.write(std::vector<int64_t>{round});
  }
  writer.join();
  LSM_EXPECT(same, "values of another round");
}

TEST_CASE("mailbox: full and empty") {
  comm::SharedBlock block(Mailbox::num_bytes());
  Mailbox mailbox(block.data());
  LSM_EXPECT(mailbox.read().empty(), "nothing was written");
  LSM_EXPECT(!mailbox.wait_written(0.01), "nothing was written");
  LSM_EXPECT(mailbox.wait_read(0), "nothing to read");
  std::vector<int64_t> longest(Mailbox::max_words(), 7);
  int64_t count = 0;
  while (mailbox.write(longest)) ++count;
  LSM_EXPECT(count >= 1, "the longest message fits");
  LSM_EXPECT(!mailbox.wait_read(0.01), "nobody has read");
  for (; count > 0; --count) LSM_EXPECT(mailbox.read() == longest, "a message is whole");
  LSM_EXPECT(mailbox.read().empty() && mailbox.wait_read(0), "all were read");
  longest.push_back(7);
  expect_throw<ArgumentError>("words, got", [&] { mailbox.write(longest); });
  expect_throw<ArgumentError>("words, got 0", [&] { mailbox.write({}); });
}

}  // namespace

}  // namespace lsm::testing
