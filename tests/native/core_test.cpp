// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The thread pool and the buffer pool under many callers at once.
#include <doctest/doctest.h>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "kernels/core/buffer.h"
#include "kernels/core/modulus.h"
#include "kernels/core/thread_pool.h"
#include "kernels/core/transfer_memory.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

void run_on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// Loops from several threads, and loops inside loops: each element is visited once.
TEST_CASE("core: loops share a pool") {
  for (const int num_threads : {1, 4}) {
    ThreadPool pool(num_threads);
    run_on_threads(3, [&](int caller) {
      for (int64_t size = 0; size < 60; ++size) {
        std::vector<int> visits(static_cast<size_t>(size * size));
        pool.parallel_for(size, 1 + caller, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            pool.parallel_for(size, 7, [&](int64_t from, int64_t to) {
              for (int64_t j = from; j < to; ++j) ++visits[static_cast<size_t>(i * size + j)];
            });
          }
        });
        for (const int visit : visits) LSM_EXPECT(visit == 1, "size ", size, ": ", visit);
      }
    });
  }
}

/// Remainders are those of the division, at the ends of the ranges and between.
TEST_CASE("core: remainders by multiplication") {
  Random random(11);
  std::vector<uint64_t> numbers = {0, 1, 2, UINT32_MAX, uint64_t{1} << 32, ~uint64_t{0}};
  for (int i = 0; i < 60; ++i) numbers.push_back(random.next() >> random.between(0, 63));
  for (const uint64_t divisor : numbers) {
    if (divisor == 0) continue;
    const Modulus modulus(divisor);
    const uint64_t last = ~uint64_t{0} / divisor * divisor;
    for (const uint64_t near : {uint64_t{0}, divisor, last, random.next() / divisor * divisor}) {
      for (const uint64_t x : {near - 1, near, near + 1, near + divisor - 1}) {
        LSM_EXPECT(modulus(x) == x % divisor, x, " mod ", divisor);
      }
    }
    for (const uint64_t x : numbers) LSM_EXPECT(modulus(x) == x % divisor, x, " mod ", divisor);
  }
}

/// The first error of a loop comes out of it, after all of its ranges have ended.
TEST_CASE("core: errors leave loops") {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int64_t> num_visited = 0;
    expect_throw<ArgumentError>("at 40", [&] {
      pool.parallel_for(100, 1, [&](int64_t begin, int64_t) {
        num_visited.fetch_add(1);
        check_argument(begin != 40, "at ", begin);
      });
    });
    LSM_EXPECT(num_visited == 100, num_visited);
  }
}

/// Buffers hold what their owner wrote, wherever they are given back.
TEST_CASE("core: buffers come back") {
  const auto pool = std::make_shared<BufferPool>(size_t{3} << 20);
  run_on_threads(4, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    std::vector<std::shared_ptr<HostBuffer>> held;
    for (int round = 0; round < 200; ++round) {
      const size_t bytes = static_cast<size_t>(random.between(1, 200'000));
      held.push_back(pool->take(bytes));
      std::memset(held.back()->data(), thread, bytes);
      const auto& kept = random.pick(held);
      for (size_t i = 0; i < kept->size(); i += 97) {
        LSM_EXPECT(static_cast<int>(kept->data()[i]) == thread, "byte ", i);
      }
      if (held.size() > 6) held.erase(held.begin() + random.between(0, 6));
    }
  });
  LSM_EXPECT(pool->idle_bytes() <= size_t{3} << 20, pool->idle_bytes());
}

/// Counts the blocks that there are, and were.
struct CountedBlock {
  static inline int num_made = 0;
  static inline int num_alive = 0;

  explicit CountedBlock(size_t bytes) : number_(++num_made), bytes_(bytes) { ++num_alive; }
  ~CountedBlock() { --num_alive; }
  CountedBlock(const CountedBlock&) = delete;
  CountedBlock& operator=(const CountedBlock&) = delete;

  /// Nothing is ever read or written there.
  std::byte* data() const {
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(number_) << 40);
  }
  size_t size() const { return bytes_; }

 private:
  int number_;
  size_t bytes_;
};

/// Few blocks are ever made, whatever steps take, and none is freed before the end.
TEST_CASE("core: transfers find their size") {
  using Memory = TransferMemory<CountedBlock>;
  Random random(3);
  for (const int64_t step_bytes : {1000, 20'000'000, 300'000'000}) {
    CountedBlock::num_made = 0;
    {
      Memory memory;
      for (int step = 0; step < 40; ++step) {
        std::map<const std::byte*, size_t> in_use;
        for (int64_t left = step_bytes - random.between(0, step_bytes / 10); left > 0;) {
          const size_t bytes = static_cast<size_t>(
              std::min<int64_t>(left, random.between(1, int64_t{Memory::kMaxTaken})));
          if (memory.is_crowded(bytes)) {
            memory.take_back();
            in_use.clear();
          }
          const std::byte* taken = memory.take(bytes);
          LSM_EXPECT(reinterpret_cast<uintptr_t>(taken) % 256 == 0, "alignment");
          LSM_EXPECT(CountedBlock::num_alive <= 4, CountedBlock::num_alive);
          const auto next = in_use.emplace(taken, bytes).first;
          LSM_EXPECT(std::next(next) == in_use.end() || taken + bytes <= std::next(next)->first,
                     "what was taken overlaps in step ", step);
          LSM_EXPECT(
              next == in_use.begin() || std::prev(next)->first + std::prev(next)->second <= taken,
              "what was taken overlaps in step ", step);
          left -= static_cast<int64_t>(bytes);
        }
        memory.take_back();
        // To free one would wait for the device.
        LSM_EXPECT(CountedBlock::num_alive == CountedBlock::num_made, "a block was freed");
      }
      if (step_bytes == 1000) LSM_EXPECT(CountedBlock::num_made == 1, CountedBlock::num_made);
    }
    LSM_EXPECT(CountedBlock::num_alive == 0, CountedBlock::num_alive);
  }
}

}  // namespace

}  // namespace lsm::testing
