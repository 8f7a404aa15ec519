// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The native bench of GPUs, in small: its code runs, and its checks of rows and plans hold.
#include <doctest/doctest.h>

#include "tests/emulated/tests.h"
#include "tests/gpu/bench.h"

namespace lsm::testing {
namespace {

TEST_CASE("GPU bench") {
  use_device(kDevice);
  const BenchSizes sizes = BenchSizes::tiny();
  bench_gathers(sizes);
  bench_tiers(sizes);
  bench_planner(sizes);
  bench_sampler(sizes);
}

}  // namespace

}  // namespace lsm::testing
