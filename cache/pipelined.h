// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

namespace lsm::cache {

/// Ids per call of a stage of run_pipelined(): enough to hide latency, few enough for the L1 cache.
inline constexpr size_t kGroup = 32;
/// Ids in flight in run_pipelined(): the state of id i may lie at index i % kUnderWay.
inline constexpr size_t kUnderWay = 4 * kGroup;

/// Calls request(begin, end), locate(begin, end) and finish(begin, end) over groups that cover
/// [0, count), each group in this order, with other groups' work in between, so that memory
/// prefetched by one stage has arrived when the next one needs it. finish() sees all earlier ids
/// finished.
template <class Request, class Locate, class Finish>
void run_pipelined(size_t count, const Request& request, const Locate& locate,
                   const Finish& finish) {
  const auto run = [count](const auto& stage, size_t step, size_t delay) {
    if (step < delay || (step - delay) * kGroup >= count) return;
    const size_t begin = (step - delay) * kGroup;
    stage(begin, std::min(begin + kGroup, count));
  };
  const size_t num_groups = (count + kGroup - 1) / kGroup;
  for (size_t step = 0; step < num_groups + 2; ++step) {
    run(request, step, 0);
    run(locate, step, 1);
    run(finish, step, 2);
  }
}

}  // namespace lsm::cache
