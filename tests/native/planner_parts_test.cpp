// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Parts of the planner against containers of the standard library.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <vector>

#include "cache/byte_match.h"
#include "cache/sorted_runs.h"

namespace lsm::cache {
namespace {

uint32_t compared_one_by_one(const std::array<uint8_t, kMatchedBytes>& bytes, uint8_t byte) {
  uint32_t equal = 0;
  for (size_t i = 0; i < bytes.size(); ++i) equal |= uint32_t{bytes[i] == byte} << i;
  return equal;
}

TEST_CASE("matched bytes are those that compare equal") {
  std::mt19937 random(1);
  // Neighbours of the byte, and of it with the highest bit, are where carries would show.
  for (const int spread : {2, 4, 256}) {
    for (int round = 0; round < 2000; ++round) {
      const auto byte = static_cast<uint8_t>(random());
      std::array<uint8_t, kMatchedBytes> bytes;
      for (uint8_t& each : bytes) {
        each = static_cast<uint8_t>(byte + random() % spread + (random() % 2) * 128);
      }
      const uint32_t expected = compared_one_by_one(bytes, byte);
      CHECK(match_bytes(bytes.data(), byte) == expected);
      CHECK(match_eight(bytes.data(), byte) == (expected & 0xFF));
      CHECK(match_eight(bytes.data() + 8, byte) == expected >> 8);
    }
  }
}

TEST_CASE("sorted runs give the keys of a heap in its order") {
  std::mt19937_64 random(2);
  for (const uint64_t num_values : {3u, 1000u, 4'000'000'000u}) {
    SortedRuns runs;
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap;
    for (int round = 0; round < 300; ++round) {
      for (uint64_t count = random() % (round % 50 == 0 ? 3000 : 30); count > 0; --count) {
        const uint64_t key = random() % num_values;
        runs.add(key);
        heap.push(key);
      }
      if (round == 200) {
        runs.clear();
        heap = {};
      }
      for (uint64_t count = random() % 60; count > 0 && !heap.empty(); --count) {
        REQUIRE(runs.lowest() == heap.top());
        CHECK(runs.soon(0) == heap.top());
        CHECK(runs.soon(7) >= heap.top());
        runs.remove_lowest();
        heap.pop();
      }
      REQUIRE(runs.size() == static_cast<int64_t>(heap.size()));
      REQUIRE(runs.is_empty() == heap.empty());
    }
  }
}

}  // namespace
}  // namespace lsm::cache
