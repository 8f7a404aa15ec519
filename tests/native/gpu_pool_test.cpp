// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Batches' memory that returns while a GPU still uses it: here a clock that the tests turn.
#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "comm/gpu_pool.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

using comm::GpuPool;

/// Fences pass when `now` has reached the time at which they are to.
struct Clock {
  std::atomic<int64_t> now{0};
  std::atomic<int64_t> passes_at{0};  // of fences that are made
};

class ClockFence final : public comm::Fence {
 public:
  explicit ClockFence(const Clock& clock) : clock_(clock), passes_at_(clock.passes_at) {}
  bool passed() override { return clock_.now >= passes_at_; }

 private:
  const Clock& clock_;
  const int64_t passes_at_;
};

class ClockMemory final : public comm::GpuMemory {
 public:
  explicit ClockMemory(Clock& clock) : clock_(clock), twin_(comm::make_twin_memory()) {}
  int device() const override { return -1; }
  std::unique_ptr<comm::ExportedBlock> allocate(size_t bytes) override {
    return twin_->allocate(bytes);
  }
  std::unique_ptr<comm::MappedBlock> map(const comm::BlockHandle& handle, size_t bytes) override {
    return twin_->map(handle, bytes);
  }
  std::unique_ptr<comm::Fence> fence() override { return std::make_unique<ClockFence>(clock_); }

 private:
  Clock& clock_;
  std::unique_ptr<comm::GpuMemory> twin_;
};

std::shared_ptr<GpuPool> open_pool(Clock& clock, size_t bytes, double timeout_secs) {
  return std::make_shared<GpuPool>(std::make_unique<ClockMemory>(clock), bytes, timeout_secs);
}

TEST_CASE("GPU pool: waits for the GPU") {
  Clock clock;
  const auto pool = open_pool(clock, 8192, 0.05);
  clock.passes_at = 1;
  std::byte* const first = pool->take(8192)->data();
  expect_throw<TimeoutError>("the GPU did not finish with earlier batches within 0.05 s",
                             [&] { pool->take(100); });
  LSM_EXPECT(pool->size() == 8192, "nothing was allocated while memory was on its way back");
  clock.now = 1;
  LSM_EXPECT(pool->take(100)->data() == first, "it is handed out when the fence has passed");
}

TEST_CASE("GPU pool: a later fence may pass first") {
  Clock clock;
  const auto pool = open_pool(clock, 8192, 5);
  auto first = pool->take(4096);
  auto second = pool->take(4096);
  std::byte* const data = second->data();
  clock.passes_at = 2;
  first.reset();
  clock.passes_at = 1;
  second.reset();
  clock.now = 1;
  LSM_EXPECT(pool->take(4096)->data() == data, "the part that is free");
}

/// No two buffers that are held overlap, from several threads; and all comes back as one.
TEST_CASE("GPU pool: parts never overlap") {
  Clock clock;
  const auto pool = open_pool(clock, 4 << 20, 5);
  std::vector<std::thread> threads;
  std::atomic<int> num_bad{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::map<int, std::shared_ptr<comm::GpuBuffer>> held;
      for (int step = 0; step < 300; ++step) {
        const int key = static_cast<int>(random() % 5);
        auto buffer = pool->take(1 + random() % 40000);
        const auto mark = static_cast<std::byte>(16 * t + key + 1);
        std::fill_n(buffer->data(), buffer->size(), mark);
        held[key] = std::move(buffer);
        for (const auto& [other, kept] : held) {
          const auto expected = static_cast<std::byte>(16 * t + other + 1);
          num_bad += !std::all_of(kept->data(), kept->data() + kept->size(),
                                  [&](std::byte byte) { return byte == expected; });
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  LSM_EXPECT(num_bad == 0, num_bad, " buffers were written by others");
  const size_t size = pool->size();
  LSM_EXPECT(size == 4 << 20, "15 buffers of at most 40,000 bytes had room, got ", size);
  pool->take(4 << 20);
  LSM_EXPECT(pool->size() == size, "what came back is one part again");
}

}  // namespace

}  // namespace lsm::testing
