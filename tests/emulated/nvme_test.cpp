// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Reads that kernels submit and complete, from the emulated controller.
#include <doctest/doctest.h>
#include <numeric>
#include <thread>

#include "kernels/io/nvme/engine/gpu_measure.h"
#include "kernels/io/nvme/gpu/gpu_arrays.h"
#include "tests/emulated/runtime/counts.h"
#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

constexpr int64_t kNumRows = 1200;

/// Many times the queue's depth over two controllers, out of order, so that queues wrap; rows that
/// straddle blocks; transfers with PRP lists and without.
TEST_CASE("emulated nvme: reads") {
  for (const int64_t row_bytes : {100, 4096, 9000}) {
    RowFiles files({kNumRows, row_bytes, 4096, 2});
    for (const int num_blocks : {0, 1}) {
      const EngineOptions options{.queue_depth = 48, .num_threads = 2};
      nvme::NvmeOptions nvme{.submission = {kDevice, num_blocks}};
      nvme.transport.emulated.num_controllers = 2;
      nvme.transport.emulated.controller.faults.reorder = true;
      const auto storage = files.open("nvme", options, nvme);
      Random random(4);
      for (int round = 0; round < 2; ++round) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < (is_part() ? 150 : 400); ++i) {
          ids.push_back(random.between(0, kNumRows - 1));
        }
        std::vector<std::byte> rows(ids.size() * static_cast<size_t>(row_bytes));
        const RowRead wanted{ids, {}, rows};
        storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
        for (size_t i = 0; i < ids.size(); ++i) {
          const auto row = std::span(rows).subspan(i * static_cast<size_t>(row_bytes), row_bytes);
          LSM_EXPECT(is_row(row, ids[i]), "row ", ids[i], " of ", row_bytes, " bytes");
        }
      }
    }
  }
}

/// The measurement compares every byte.
TEST_CASE("emulated nvme: waves") {
  for (const bool into_device_memory : {false, true}) {
    for (const uint32_t num_pages : {1u, 3u}) {
      nvme::WaveOptions options;
      options.device = kDevice;
      options.num_blocks = {1, 3};
      options.num_queues = 6;
      options.depth = 64;
      options.num_reads = 150;
      options.read_bytes = num_pages * 4096;
      options.into_device_memory = into_device_memory;
      options.rounds = 1;
      LSM_EXPECT(nvme::measure_waves(options).size() == 2, "one for each number of blocks");
    }
  }
}

/// A kernel that submits reads what is to be read across the bus, and nothing of its queue.
TEST_CASE("emulated nvme: reads across the bus") {
  constexpr int kMaxLanes = 64;  // with a group each, which look whether they are to submit
  RowFiles files({kNumRows, 4096, 4096, 1});
  const auto storage = files.open("nvme", {.queue_depth = 48}, {.submission = {kDevice, 1}});
  const emulated::KernelCounts& counts = emulated::counts_of("submit");
  const int64_t launches = counts.launches, reads = counts.far_reads;
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < kNumRows; id += 3) ids.push_back(id);
  std::vector<std::byte> rows(ids.size() * 4096);
  const RowRead wanted{ids, {}, rows};
  storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
  // The fields of each read's blocks, and their bytes.
  const int64_t most =
      kMaxLanes * (counts.launches - launches) + 4 * static_cast<int64_t>(ids.size());
  LSM_EXPECT(counts.far_reads - reads <= most, counts.far_reads - reads, ", not ", most);
}

/// A look at a completion is one load across the bus.
TEST_CASE("emulated nvme: looks across the bus") {
  RowFiles files({kNumRows, 4096, 4096, 1});
  const auto storage = files.open("nvme", {.queue_depth = 48}, {.submission = {kDevice, 1}});
  const emulated::KernelCounts& counts = emulated::counts_of("complete");
  const int64_t launches = counts.launches, reads = counts.far_reads;
  std::vector<int64_t> ids(40);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<std::byte> rows(ids.size() * 4096);
  const RowRead wanted{ids, {}, rows};
  storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
  // Each look of a warp at its queue; a second one where 32 completions were there.
  const int64_t looks = counts.launches - launches + static_cast<int64_t>(ids.size()) / 32;
  LSM_EXPECT(counts.far_reads - reads <= 32 * looks, counts.far_reads - reads, " by ", looks);
}

/// Kernels' memory, let go by a thread that never chose a device.
TEST_CASE("emulated nvme: let go elsewhere") {
  const CudaStream stream(kDevice);
  std::vector<std::byte> registered(8192);
  auto array = std::make_unique<nvme::GpuArray<int>>(100, stream.get());
  auto range = std::make_unique<nvme::MappedRange>(registered.data(), registered.size(), 0, "map");
  std::thread([&] {
    array.reset();
    range.reset();
  }).join();
}

/// A storage whose queues a GPU works, closed by a thread that never chose a device.
TEST_CASE("emulated nvme: closed elsewhere") {
  RowFiles files({40, 512, 4096, 1});
  auto storage = files.open("nvme", {}, {.submission = {kDevice, 1}});
  const std::vector<int64_t> ids = {3, 1, 30};
  std::vector<std::byte> rows(ids.size() * 512);
  const RowRead wanted{ids, {}, rows};
  storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
  std::thread([&] { storage.reset(); }).join();
  LSM_EXPECT(is_row(std::span(rows).first(512), 3), "row 3");
}

}  // namespace

}  // namespace lsm::testing
