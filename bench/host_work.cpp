// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// CPU time of the host for batches that a GPU plans and replays: `host_work [IDS] [NODES]` prints a
// line of JSON for each mode of the victim buffer. The twin's kernels, copies and fills of GPU
// memory are left out of the times; what the host itself copies to and from the GPU is not. Built
// with the native tests:
//   cmake -S . -B build/host-work -DCMAKE_BUILD_TYPE=Release -DLSM_NATIVE_TESTS=ON
//   cmake --build build/host-work --target host_work && build/host-work/tests/native/host_work
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cache/executor_on_backend.h"
#include "cache/planner.h"
#include "cache/set_cache_on_backend.h"
#include "kernels/core/host_backend.h"

namespace lsm {
namespace {

constexpr int64_t kWindow = 16;
constexpr int64_t kRowBytes = 16;
constexpr int kWarmUp = 24, kMeasured = 15;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of_gpu = 0;

/// A HostBackend that adds up the time of all that a GPU would do.
class TimedBackend : public HostBackend {
 public:
  void copy(void* target, const void* source, size_t bytes) {
    timed([&] { HostBackend::copy(target, source, bytes); });
  }
  void fill(void* target, int byte, size_t bytes) {
    timed([&] { HostBackend::fill(target, byte, bytes); });
  }
  template <class F>
  void for_each(int64_t count, const F& f) {
    timed([&] { HostBackend::for_each(count, f); });
  }
  template <class F>
  void for_each_warp(int64_t count, const F& f) {
    timed([&] { HostBackend::for_each_warp(count, f); });
  }
  template <class... Arguments>
  void sort_pairs(Arguments... arguments) {
    timed([&] { HostBackend::sort_pairs(arguments...); });
  }

  struct Event {
    explicit Event(const TimedBackend&) {}
  };
  void record(Event&) {}
  void block(const Event&) {}
  void wait(const Event&, const char*) {}

 private:
  template <class Work>
  void timed(const Work& work) {
    const double begin = cpu_seconds();
    work();
    seconds_of_gpu += cpu_seconds() - begin;
  }
};

/// Distinct ids, low ones far more often than high ones.
std::vector<std::vector<int64_t>> draw_lists(int64_t num_ids, int64_t num_nodes, size_t count) {
  uint64_t state = 41;
  std::vector<std::vector<int64_t>> lists(count);
  std::vector<uint32_t> taken_by(static_cast<size_t>(num_nodes));
  for (uint32_t number = 1; number <= count; ++number) {
    auto& list = lists[number - 1];
    while (std::ssize(list) < num_ids) {
      const double drawn = static_cast<double>(mix64(++state) >> 11) * 0x1p-53;
      const auto id = static_cast<int64_t>(static_cast<double>(num_nodes) * drawn * drawn * drawn);
      if (taken_by[static_cast<size_t>(id)] == number) continue;
      taken_by[static_cast<size_t>(id)] = number;
      list.push_back(id);
    }
  }
  return lists;
}

/// Rows that nothing reads: there are none in tiers that the executor fills.
class NoStorage final : public Storage {
 public:
  explicit NoStorage(int64_t num_nodes) : Storage("none", {num_nodes, kRowBytes, 4096, 1}) {}

 private:
  Requests start(std::span<const RowRead>) override { return {}; }
};

struct Measured {
  std::array<double, 3> seconds;  // push, plan, replay
  cache::Counters counters;
};

std::vector<Measured> run(const cache::PlannerConfig& config,
                          const std::vector<std::vector<int64_t>>& lists) {
  const auto backend = [] { return std::make_unique<TimedBackend>(); };
  const std::vector<float> scores(static_cast<size_t>(config.num_nodes), 1.0F);
  cache::Planner planner(
      config, {.scores = scores, .static_ids = {}, .constant_ids = {}, .trace = {}},
      std::make_shared<ThreadPool>(1), cache::make_set_cache_on_backend(backend(), config, scores));
  NoStorage storage(config.num_nodes);
  ExecutorOnBackend<TimedBackend> executor(
      {backend(), backend(), backend()},
      {.num_lines = config.num_lines, .victim_slots = config.victim_rows, .prefetch_rows = 0},
      storage, {}, {});
  std::vector<std::byte> staged(lists[0].size() * kRowBytes), out(staged.size());
  std::vector<Measured> all;
  const auto time = [](const auto& work) {
    seconds_of_gpu = 0;
    const double begin = cpu_seconds();
    work();
    return cpu_seconds() - begin - seconds_of_gpu;
  };
  for (size_t t = 0; t + kWindow <= lists.size(); ++t) {
    Measured now{};
    while (planner.num_pushed() < static_cast<int64_t>(t) + kWindow) {
      const auto& ids = lists[static_cast<size_t>(planner.num_pushed())];
      now.seconds[0] = time([&] { planner.push(ids); });
    }
    cache::Plan plan;
    now.seconds[1] = time([&] { planner.plan(&plan); });
    const auto bytes = static_cast<size_t>(plan.counters.misses * kRowBytes);
    now.seconds[2] = time([&] { executor.replay(plan, {staged.data(), bytes}, out); });
    now.counters = plan.counters;
    all.push_back(now);
  }
  return {all.end() - kMeasured, all.end()};
}

void report(const cache::PlannerConfig& config, std::vector<Measured> measured, size_t num_ids) {
  std::printf(
      "{\"bench\": \"host work\", \"victims\": \"%s\", \"ids\": %zu, \"misses\": %lld, "
      "\"victim_hits\": %lld, \"spilled\": %lld, \"ms_per_100k_ids\": {",
      config.victim_mode.c_str(), num_ids, static_cast<long long>(measured.back().counters.misses),
      static_cast<long long>(measured.back().counters.victim_hits),
      static_cast<long long>(measured.back().counters.spilled));
  double sum = 0;
  for (size_t part = 0; part < 3; ++part) {
    const auto middle = measured.begin() + kMeasured / 2;
    std::ranges::nth_element(measured, middle, {}, [&](const auto& m) { return m.seconds[part]; });
    const double ms = 1e3 * middle->seconds[part] * 1e5 / static_cast<double>(num_ids);
    std::printf("\"%s\": %.3f, ", std::array{"push", "plan", "replay"}[part], ms);
    sum += ms;
  }
  std::printf("\"all\": %.3f}}\n", sum);
}

}  // namespace
}  // namespace lsm

int main(int argc, char** argv) {
  using namespace lsm;
  const int64_t num_ids = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const int64_t num_nodes = argc > 2 ? std::atoll(argv[2]) : 20 * num_ids;
  if (num_ids < 1 || num_nodes < 4 * num_ids) {
    std::fprintf(stderr, "host_work [IDS] [NODES]: expected 1 id or more, and 4 nodes for each\n");
    return 2;
  }
  const auto lists = draw_lists(num_ids, num_nodes, kWindow + kWarmUp + kMeasured);
  for (const char* victims : {"none", "pool"}) {
    cache::PlannerConfig config;
    config.num_lines = num_nodes / 10 / config.ways * config.ways + config.ways;
    config.window = kWindow;
    config.num_nodes = num_nodes;
    config.victim_mode = victims;
    config.victim_rows = config.victim_mode == "none" ? 0 : config.num_lines / 4;
    report(config, run(config, lists), lists[0].size());
  }
}
