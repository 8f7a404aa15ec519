// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// How much kernels do, as the emulated GPU counts it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/gather/gpu_gather.h"
#include "tests/emulated/runtime/counts.h"
#include "tests/emulated/tests.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

constexpr int64_t kNumRows = 1200;

/// A batch of so many rows from storage that a launch without a limit would take many blocks.
void replay_large_batch() {
  constexpr int64_t kRowBytes = 4096;
  RowFiles files({kNumNodes, kRowBytes, 4096, 1});
  const auto storage = files.open("posix");
  const auto executor = make_gpu_executor({}, *storage, {}, {}, kDevice);
  cache::Plan plan;
  plan.source.assign(kNumNodes, RowSource::kStorage);
  plan.slot.assign(kNumNodes, -1);
  plan.count_sources();
  const PinnedBlock staged(kNumNodes * kRowBytes);
  std::memset(staged.data(), 7, staged.size());
  const GpuBytes out(staged.size());
  executor->replay(plan, {staged.data(), staged.size()}, {out.data(), staged.size()});
  executor->synchronize();
  LSM_EXPECT(std::ranges::count(out.fetch(), std::byte{7}) == kNumNodes * kRowBytes, "rows");
}

/// Waiting for PCIe is not to hold SMs that training needs: rows behind it are moved by few blocks,
/// in streams before which all others go.
TEST_CASE("GPU executor leaves SMs to training") {
  const emulated::CallCounts& counts = emulated::call_counts();
  const int64_t held = counts.far_bytes_holding_sms;
  for (const auto& make : {make_executor, make_planning_executor}) check_rows_of_plans(48, make);
  replay_large_batch();
  LSM_EXPECT(counts.far_bytes_holding_sms == held, counts.far_bytes_holding_sms - held,
             " bytes over the bus");
}

/// A kernel that submits reads what is to be read across the bus, and nothing of its queue.
TEST_CASE("GPU nvme: reads across the bus") {
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
TEST_CASE("GPU nvme: looks across the bus") {
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

struct RowTraffic {
  double sectors, instructions;
};

/// Of a row of a gather in GPU memory, by arithmetic: sectors of its source and target, with those
/// that it shares with its neighbours, and of its id; loads and stores of a warp.
RowTraffic estimate(int64_t row_bytes, int64_t word_bytes) {
  constexpr double kSector = emulated::kSectorBytes;
  constexpr int64_t kLanes = 32, kAhead = 4, kShort = 1024, kIdBytes = 8;
  const int64_t words = row_bytes / word_bytes;
  const bool is_short = row_bytes <= kShort;
  int64_t lanes = 1;
  while (lanes < std::min(words, kLanes)) lanes *= 2;
  const int64_t rows_of_warp = is_short ? kAhead * (kLanes / lanes) : 1;
  const int64_t rounds = (words + lanes - 1) / lanes;
  // A span begins at any multiple of what the size of rows and a sector have in common.
  const auto span = [&](int64_t bytes) {
    const auto common = static_cast<double>(std::gcd(bytes, int64_t{emulated::kSectorBytes}));
    return (static_cast<double>(bytes) + kSector - common) / kSector;
  };
  const auto of_warp = static_cast<double>(rows_of_warp);
  const double instructions =
      1 + static_cast<double>(2 * rounds) * (is_short ? double{kAhead} : 1.0);
  return {
      span(row_bytes) + (span(rows_of_warp * row_bytes) + span(rows_of_warp * kIdBytes)) / of_warp,
      instructions / of_warp};
}

/// No more memory than the rows and their ids, and no more instructions than words take.
TEST_CASE("GPU gathers: traffic of a row") {
  constexpr int64_t kCount = 512;
  Random random(3);
  const CudaStream stream(kDevice);
  std::vector<int64_t> ids(kCount);
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t i = ids.size() - 1; i > 0; --i) {
    std::swap(ids[i], ids[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
  }
  const GpuBytes wanted(bytes_of(ids));
  const std::pair<int64_t, int64_t> sizes[] = {{200, 8},  {202, 2},   {256, 16},  {300, 4},
                                               {512, 16}, {1024, 16}, {2048, 16}, {4096, 16}};
  for (const auto& [row_bytes, word_bytes] : sizes) {
    const GpuBytes rows(std::vector<std::byte>(static_cast<size_t>(kCount * row_bytes)));
    const GpuBytes out(static_cast<size_t>(kCount * row_bytes));
    emulated::WarpTraffic& traffic = emulated::warp_traffic();
    traffic.sectors = traffic.instructions = 0;
    emulated::count_traffic(true);
    gather_on_gpu({rows.data(), wanted.as<int64_t>(), out.data(), nullptr, kCount, row_bytes},
                  LineLocks::kNone, kDevice, reinterpret_cast<intptr_t>(stream.get()));
    check_cuda(cudaStreamSynchronize(stream.get()), "gather");
    emulated::count_traffic(false);
    if (traffic.sectors == 0) return;  // the race build does not count
    const RowTraffic found{static_cast<double>(traffic.sectors) / kCount,
                           static_cast<double>(traffic.instructions) / kCount};
    const RowTraffic expected = estimate(row_bytes, word_bytes);
    MESSAGE("a row of ", row_bytes, " B: ", found.sectors * emulated::kSectorBytes,
            " B moved, by arithmetic ", expected.sectors * emulated::kSectorBytes, "; ",
            found.instructions, " loads and stores of a warp, by arithmetic ",
            expected.instructions);
    LSM_EXPECT(found.sectors <= expected.sectors * 1.02, row_bytes, " bytes: ", found.sectors,
               " sectors, not ", expected.sectors);
    LSM_EXPECT(found.instructions <= expected.instructions * 1.001, row_bytes,
               " bytes: ", found.instructions, " instructions, not ", expected.instructions);
  }
}

}  // namespace

}  // namespace lsm::testing
