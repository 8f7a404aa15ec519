// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// How much kernels do, as the emulated GPU counts it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

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

}  // namespace

}  // namespace lsm::testing
