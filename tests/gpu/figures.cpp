// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/figures.h"

#include <algorithm>
#include <cstdio>

#include "kernels/core/cuda_check.h"

namespace lsm::testing {
namespace {

/// An event that knows its time.
class TimedEvent {
 public:
  TimedEvent() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDefault), "make an event"); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double print(const Figure& figure) {
  const double median = median_of(figure.values);
  std::printf("{\"figure\": \"%s\"", figure.name.c_str());
  for (const auto& [name, size] : figure.sizes) {
    std::printf(", \"%s\": %lld", name.c_str(), static_cast<long long>(size));
  }
  if (!figure.variant.empty()) std::printf(", \"variant\": \"%s\"", figure.variant.c_str());
  std::printf(", \"value\": %.5g, \"min\": %.5g, \"max\": %.5g, \"repeats\": %zu, \"unit\": \"%s\"",
              median, std::ranges::min(figure.values), std::ranges::max(figure.values),
              figure.values.size(), figure.unit.c_str());
  if (figure.beside > 0) {
    std::printf(", \"beside\": %.5g, \"beside_what\": \"%s\", \"ratio\": %.4f", figure.beside,
                figure.beside_what.c_str(), median / figure.beside);
  }
  std::printf("}\n");
  std::fflush(stdout);
  return median;
}

std::vector<double> seconds_in_stream(cudaStream_t stream, int repeats,
                                      const std::function<void(int)>& work) {
  const TimedEvent start, end;
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    check_cuda(cudaStreamSynchronize(stream), "wait before a measurement");
    check_cuda(cudaEventRecord(start.get(), stream), "record the start");
    work(std::max(i, 0));
    check_cuda(cudaEventRecord(end.get(), stream), "record the end");
    check_cuda(cudaStreamSynchronize(stream), "wait for a measurement");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, start.get(), end.get()), "read a time");
    if (i >= 0) seconds.push_back(1e-3 * ms);
  }
  return seconds;
}

std::vector<double> seconds_on_host(int repeats, const std::function<void(int)>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = -1; i < repeats; ++i) {
    const auto start = Clock::now();
    work(std::max(i, 0));
    if (i >= 0) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

std::vector<double> rates(double amount, const std::vector<double>& seconds) {
  std::vector<double> made;
  for (const double spent : seconds) made.push_back(amount / spent);
  return made;
}

}  // namespace lsm::testing
