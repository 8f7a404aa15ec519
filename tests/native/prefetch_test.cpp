// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The thread that prefetches from the victim buffer, against replays that write the same slots.
#include <doctest/doctest.h>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "cache/metadata_word.h"
#include "cache/plan.h"
#include "cache/victim_prefetcher.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

constexpr int64_t kSlots = 24, kAhead = 3;

/// Batches of one iteration: position p is served from slot slots[p], or from storage if that is
/// -1.
struct Rows {
  std::vector<RowSource> source;
  std::vector<int64_t> slot;
  std::vector<std::byte> bytes;

  Rows(const std::vector<int64_t>& slots, int64_t row_bytes)
      : slot(slots), bytes(slots.size() * static_cast<size_t>(row_bytes)) {
    for (const int64_t s : slots) {
      source.push_back(s < 0 ? RowSource::kStorage : RowSource::kVictim);
    }
  }
  VictimPrefetcher::Batch batch() { return {source, slot, bytes}; }
};

/// Slot s holds the row of iteration t while it waits for it; every slot is written anew as soon as
/// its row was served.
TEST_CASE("prefetch: slots change hands") {
  for (const int64_t row_bytes : {16, 4096, 100'000}) {
    std::vector<std::byte> buffer(kSlots * static_cast<size_t>(row_bytes));
    std::map<int64_t, std::vector<int64_t>> slots_of;  // by iteration
    std::map<int64_t, std::unique_ptr<Rows>> open;     // outlives the thread that writes to it
    VictimPrefetcher prefetcher({kSlots, row_bytes, kAhead, kTimeoutSecs}, buffer.data());
    Random random(static_cast<uint64_t>(row_bytes));
    for (int64_t slot = 0; slot < kSlots; ++slot) slots_of[0].push_back(slot);
    for (int64_t t = 0; t < 300; ++t) {
      const std::vector<int64_t> freed = slots_of[t];
      prefetcher.pause();
      if (const auto batch = open.find(t); batch != open.end()) {
        const auto arrived = prefetcher.arrived(t, batch->second->bytes);
        for (size_t p = 0; p < freed.size(); ++p) {
          const std::span<const std::byte> row(
              &batch->second->bytes[p * static_cast<size_t>(row_bytes)],
              static_cast<size_t>(row_bytes));
          if (arrived[p]) LSM_EXPECT(is_row(row, t * kSlots + freed[p]), "iteration ", t);
        }
      }
      std::vector<int64_t> words;
      for (const int64_t slot : freed) {
        const int64_t next = t + random.between(1, 5);
        const auto position = static_cast<uint64_t>(slots_of[next].size());
        slots_of[next].push_back(slot);
        words.push_back(
            static_cast<int64_t>(cache::pack_metadata({static_cast<uint64_t>(next), 0, position})));
        write_row({&buffer[static_cast<size_t>(slot * row_bytes)], static_cast<size_t>(row_bytes)},
                  next * kSlots + slot);
      }
      const VictimMoves moves{freed, words};
      prefetcher.record(t, {&moves, 1});
      open.erase(t);
      prefetcher.resume();
      // Nothing enters any more for the next iteration.
      auto& next = open[t + 1] = std::make_unique<Rows>(slots_of[t + 1], row_bytes);
      prefetcher.open(t + 1, next->batch());
      if (random.chance(50)) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    LSM_EXPECT(prefetcher.num_copied() > 0, "rows of ", row_bytes, " bytes");
  }
}

TEST_CASE("prefetch: closing and forgetting") {
  constexpr int64_t kRowBytes = 200'000;
  std::vector<std::byte> buffer(kSlots * kRowBytes);
  std::vector<int64_t> slots, words;
  for (int64_t slot = 0; slot < kSlots; ++slot) {
    slots.push_back(slot);
    words.push_back(
        static_cast<int64_t>(cache::pack_metadata({1, 0, static_cast<uint64_t>(slot)})));
  }
  const VictimMoves moves{slots, words};
  for (int round = 0; round < 20; ++round) {
    VictimPrefetcher prefetcher({kSlots, kRowBytes, kAhead, kTimeoutSecs}, buffer.data());
    for (int again = 0; again < 3; ++again) {
      auto rows = std::make_unique<Rows>(slots, kRowBytes);
      prefetcher.open(1, rows->batch());
      prefetcher.pause();
      prefetcher.record(0, {&moves, 1});
      prefetcher.resume();
      std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
      prefetcher.forget();  // the batch may go
    }
  }
}

TEST_CASE("prefetch: errors surface") {
  std::vector<std::byte> buffer(kSlots * 8);
  const std::vector<int64_t> slots = {3};
  const std::vector<int64_t> words = {static_cast<int64_t>(cache::pack_metadata({1, 0, 9}))};
  const VictimMoves moves{slots, words};
  Rows rows({3}, 8);
  VictimPrefetcher prefetcher({kSlots, 8, kAhead, kTimeoutSecs}, buffer.data());
  prefetcher.open(1, rows.batch());
  prefetcher.pause();
  prefetcher.record(0, {&moves, 1});
  prefetcher.resume();
  expect_throw<std::runtime_error>("position 9 of iteration 1, which has 1 rows", [&] {
    for (int i = 0; i < 10'000; ++i) {
      prefetcher.pause();
      prefetcher.resume();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  prefetcher.forget();
  prefetcher.pause();
  prefetcher.resume();
}

}  // namespace

}  // namespace lsm::testing
