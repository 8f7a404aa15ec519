// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Figures of the native bench: times by events, a line of JSON each.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lsm::testing {

/// A measured rate, next to another that the same run measured: the ceiling, if there is one.
struct Figure {
  std::string name;
  std::map<std::string, int64_t> sizes{};
  std::string variant{};
  std::string unit;
  std::vector<double> values;  // one per repeat
  double beside = 0;           // 0: none
  std::string beside_what{};
};

/// Prints one line of JSON with median, smallest and largest value, at once. Returns the median.
double print(const Figure& figure);

/// Seconds of each of `repeats` calls of work(i), which queues work to `stream`; by events around
/// it. One more call comes first, with i = 0, and is not counted.
std::vector<double> seconds_in_stream(cudaStream_t stream, int repeats,
                                      const std::function<void(int)>& work);
/// The same for work that blocks the host until it has ended.
std::vector<double> seconds_on_host(int repeats, const std::function<void(int)>& work);

/// amount / seconds, each.
std::vector<double> rates(double amount, const std::vector<double>& seconds);

}  // namespace lsm::testing
