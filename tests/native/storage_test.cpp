// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Storage engines under many callers, with faults, and closed at a bad time: the rows are those of
// the files, or there is an error.
#include <doctest/doctest.h>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

constexpr std::byte kUntouched{0xA5};

/// Reads random rows to random positions, several reads at once, and checks every byte.
void read_some(Storage& storage, Random& random) {
  const RowLayout& layout = storage.layout();
  struct Asked {
    std::vector<int64_t> rows, positions;
    std::vector<std::byte> output;
  };
  std::vector<Asked> asked(static_cast<size_t>(random.between(1, 4)));
  std::vector<RowRead> reads;
  for (Asked& ask : asked) {
    const int64_t num_positions = random.between(1, 60);
    ask.output.assign(static_cast<size_t>(num_positions * layout.row_bytes), kUntouched);
    for (int64_t position = 0; position < num_positions; ++position) {
      if (random.chance(30)) continue;
      ask.rows.push_back(random.between(0, layout.num_rows - 1));
      ask.positions.push_back(position);
    }
    reads.push_back({ask.rows, ask.positions, ask.output});
  }
  const auto requests = storage.submit(reads);
  for (const auto& request : requests) request->wait(kTimeoutSecs);
  const std::vector<std::byte> untouched(static_cast<size_t>(layout.row_bytes), kUntouched);
  for (const Asked& ask : asked) {
    const auto row_bytes = static_cast<size_t>(layout.row_bytes);
    size_t next = 0;
    for (size_t begin = 0; begin < ask.output.size(); begin += row_bytes) {
      const std::span<const std::byte> row(&ask.output[begin], row_bytes);
      const bool is_asked =
          next < ask.rows.size() && begin == static_cast<size_t>(ask.positions[next]) * row_bytes;
      if (is_asked) {
        LSM_EXPECT(is_row(row, ask.rows[next]), "row ", ask.rows[next]);
        ++next;
      } else {
        LSM_EXPECT(std::memcmp(row.data(), untouched.data(), row.size()) == 0, "at ", begin);
      }
    }
  }
}

TEST_CASE("storage: rows are those of the files") {
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> kinds = {
      {{300, 1}}, {{300, 3}}, {{120, 1}, {0, 1}, {30, 2}, {150, 1}}};
  for (const auto& sets : kinds) {
    for (const int64_t row_bytes : {100, 4096, 5000}) {
      RowFiles files(RowLayout::of_sets(sets, row_bytes, 4096));
      for (const std::string& engine : engines()) {
        for (const int64_t gap : {0, 8192}) {
          const auto storage =
              files.open(engine, {.queue_depth = 8, .num_threads = 2, .max_gap_bytes = gap});
          std::vector<std::thread> callers;
          std::vector<std::string> errors(3);
          for (size_t caller = 0; caller < errors.size(); ++caller) {
            callers.emplace_back([&, caller] {
              try {
                Random random(caller);
                for (int i = 0; i < 8; ++i) read_some(*storage, random);
              } catch (const std::exception& error) {
                errors[caller] = error.what();
              }
            });
          }
          for (std::thread& caller : callers) caller.join();
          for (const std::string& error : errors) LSM_EXPECT(error.empty(), engine, ": ", error);
        }
      }
    }
  }
}

std::vector<std::string> queued_engines() {
  std::vector<std::string> names;
  for (const std::string& engine : engines()) {
    if (engine == "posix" || engine == "io_uring") names.push_back(engine);
  }
  return names;
}

std::vector<int64_t> every(int64_t num_rows) {
  std::vector<int64_t> rows(static_cast<size_t>(num_rows));
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
  return rows;
}

/// Also: the output may go away as soon as wait() has thrown, and the engine works on.
TEST_CASE("storage: faults are errors") {
  RowFiles files({200, 4096, 4096, 1});
  const auto rows = every(200);
  for (const std::string& engine : queued_engines()) {
    for (const Fault fault : {Fault::kError, Fault::kShort, Fault::kStall}) {
      const auto storage = files.open(engine, {.queue_depth = 4, .num_threads = 2});
      for (int64_t nth = 0; nth < 3; ++nth) {
        storage->faults().arm(fault, nth, fault == Fault::kError ? EIO : 1000);
        auto output = std::make_unique<std::vector<std::byte>>(200 * 4096);
        const RowRead read{rows, {}, *output};
        const auto request = storage->submit({&read, 1}).front();
        if (fault == Fault::kShort) {
          request->wait(kTimeoutSecs);
          for (int64_t row = 0; row < 200; ++row) {
            LSM_EXPECT(is_row({&(*output)[static_cast<size_t>(row * 4096)], 4096}, row), row);
          }
        } else if (fault == Fault::kError) {
          expect_throw<SystemError>("Input/output error", [&] { request->wait(kTimeoutSecs); });
        } else {
          expect_throw<TimeoutError>("did not arrive", [&] { request->wait(0.3); });
        }
        output.reset();
        Random random(static_cast<uint64_t>(nth));
        read_some(*storage, random);
      }
    }
  }
}

/// A read under way when an engine closes arrives or is an error, never a hang; a cancelled one is
/// not written.
TEST_CASE("storage: closing ends reads") {
  RowFiles files({400, 4096, 4096, 2});
  const auto rows = every(400);
  for (const std::string& engine : queued_engines()) {
    for (int round = 0; round < 12; ++round) {
      auto storage = files.open(engine, {.queue_depth = 2, .num_threads = 2});
      std::vector<std::vector<std::byte>> outputs(6);
      std::vector<std::shared_ptr<Request>> requests;
      for (auto& output : outputs) {
        output.assign(400 * 4096, kUntouched);
        const RowRead read{rows, {}, output};
        requests.push_back(storage->submit({&read, 1}).front());
      }
      requests[5]->cancel();
      std::vector<std::byte>().swap(outputs[5]);
      std::thread waiter([&] {
        for (int i = 0; i < 3; ++i) {
          try {
            requests[static_cast<size_t>(i)]->wait(kTimeoutSecs);
          } catch (const std::runtime_error&) {
            // closed first
          }
        }
      });
      if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(round));
      storage.reset();
      waiter.join();
      for (size_t i = 0; i < 5; ++i) {
        try {
          requests[i]->wait(kTimeoutSecs);
        } catch (const std::runtime_error&) {
          continue;
        }
        LSM_EXPECT(is_row({&outputs[i][399 * 4096], 4096}, 399), engine);
      }
    }
  }
}

TEST_CASE("storage: a truncated file is an error") {
  for (const std::string& engine : queued_engines()) {
    for (const int64_t more : {0, 100}) {  // bytes of the next block
      RowFiles files({64, 4096, 4096, 1});
      const auto storage = files.open(engine);
      std::filesystem::resize_file(files.paths()[0], 16 * 4096 + more);
      const auto rows = every(64);
      std::vector<std::byte> output(64 * 4096);
      const RowRead read{rows, {}, output};
      const auto request = storage->submit({&read, 1}).front();
      expect_throw<SystemError>("truncated", [&] { request->wait(kTimeoutSecs); });
    }
  }
}

}  // namespace

}  // namespace lsm::testing
