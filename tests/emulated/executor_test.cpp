// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Rows of plans that executors on the emulated GPU replay, in all ways and of many sizes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "tests/emulated/runtime/counts.h"
#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

CheckedExecutor make_executor(const GpuExecutorOptions& options, Storage& storage,
                              const PlannerCase& planned) {
  return {make_gpu_executor(options, storage, planned.static_ids, planned.constant_ids, kDevice),
          std::make_unique<GpuMemory>()};
}

/// That replays plans where they were made.
CheckedExecutor make_planning_executor(const GpuExecutorOptions& options, Storage& storage,
                                       const PlannerCase& planned) {
  CheckedExecutor made = make_executor(options, storage, planned);
  made.sets = cache::make_gpu_set_cache(planned.config, planned.scores, kDevice, kTimeoutSecs);
  return made;
}

TEST_CASE("emulated executor") {
  const std::vector<int64_t> all = {1, 2, 3, 7, 16, 20, 48, 100, 129, 512, 1000, 2048, 4095, 4096};
  for (const int64_t row_bytes : is_part() ? std::vector<int64_t>{3, 48} : all) {
    check_rows_of_plans(row_bytes, make_executor);
    check_rows_of_plans(row_bytes, make_planning_executor);
  }
}

/// A batch of so many rows from storage that a launch without a limit would take many blocks.
void replay_large_batch() {
  constexpr int64_t kRowBytes = 4096;
  RowFiles files({kNumNodes, kRowBytes, 4096, 1});
  const auto storage = files.open("posix");
  const auto executor = make_gpu_executor({}, *storage, {}, {}, kDevice);
  const std::vector<uint8_t> source(kNumNodes, static_cast<uint8_t>(RowSource::kStorage));
  const std::vector<int64_t> slot(kNumNodes, -1);
  PlanMoves moves;
  moves.source = source;
  moves.slot = slot;
  const PinnedBlock staged(kNumNodes * kRowBytes);
  std::memset(staged.data(), 7, staged.size());
  const GpuBytes out(staged.size());
  executor->replay(moves, {staged.data(), staged.size()}, {out.data(), staged.size()});
  executor->synchronize();
  LSM_EXPECT(std::ranges::count(out.fetch(), std::byte{7}) == kNumNodes * kRowBytes, "rows");
}

/// Waiting for PCIe is not to hold SMs that training needs: rows behind it are moved by few blocks,
/// in streams before which all others go.
TEST_CASE("emulated executor leaves SMs to training") {
  const emulated::CallCounts& counts = emulated::call_counts();
  const int64_t held = counts.far_bytes_holding_sms;
  for (const auto& make : {make_executor, make_planning_executor}) check_rows_of_plans(48, make);
  replay_large_batch();
  LSM_EXPECT(counts.far_bytes_holding_sms == held, counts.far_bytes_holding_sms - held,
             " bytes over the bus");
}

}  // namespace

}  // namespace lsm::testing
