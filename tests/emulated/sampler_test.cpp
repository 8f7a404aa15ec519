// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Samples of topology in GPU memory and in page-locked memory, as the host draws them.
#include <doctest/doctest.h>

#include "tests/emulated/placed_sampler.h"

namespace lsm::testing {
namespace {

TEST_CASE("GPU sampler") {
  check_samples([](const SampledTypes& types) {
    std::vector<std::unique_ptr<GpuSampler>> samplers;
    if (is_part() && is_large(types)) return samplers;
    for (const bool is_near : {false, true}) {
      if (is_part() && is_near) break;
      samplers.push_back(std::make_unique<PlacedSampler>(types, is_near, is_near));
    }
    return samplers;
  });
}

}  // namespace

}  // namespace lsm::testing
