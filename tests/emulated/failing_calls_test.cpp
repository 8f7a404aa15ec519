// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Each call of CUDA fails once: owners let go of everything, wait for nothing that does not come,
// and deliver no wrong rows. Only the emulated runtime has such calls.
#include <doctest/doctest.h>

#include <functional>
#include <numeric>
#include <string>

#include "comm/gpu_memory.h"
#include "comm/gpu_pool.h"
#include "kernels/core/cuda_memory.h"
#include "kernels/core/page_lock.h"
#include "kernels/embed/gpu_distances.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"
#include "kernels/sample/typed_sampler.h"
#include "tests/emulated/placed_sampler.h"
#include "tests/emulated/runtime/failures.h"
#include "tests/emulated/tests.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

/// The message of the CudaError that `scenario` ends with, empty if it has none. Other errors are
/// found.
std::string error_of(const std::function<void()>& scenario) {
  try {
    scenario();
  } catch (const CudaError& error) {
    return error.what();
  }
  return "";
}

/// Runs `reads`; an error of a read of a row ends with that of CUDA, or with the drive's own if the
/// drive is played by a call that failed. Both become CudaErrors.
void read_rows(const std::function<void()>& reads) {
  try {
    reads();
  } catch (const CudaError&) {
    throw;
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    LSM_EXPECT(text.find("CUDA: ") != std::string::npos ||
                   text.find("unrecovered read error") != std::string::npos,
               text);
    throw CudaError(cudaErrorUnknown, "read rows");
  }
}

/// Runs the scenario once for each of its calls, which fails.
void check_failures(const std::function<void()>& scenario) {
  scenario();  // what it leaves lives as long as the process, as a pool of memory does
  emulated::fail_call(0);
  scenario();
  const int64_t num_calls = emulated::num_calls();
  const int64_t num_live = emulated::live_counts().sum();
  LSM_EXPECT(num_calls > 0, "no call");
  int64_t num_errors = 0;
  for (int64_t n = 1; n <= num_calls; n += is_part() ? 9 : 1) {
    emulated::fail_call(n);
    const std::string error = error_of(scenario);
    emulated::fail_call(0);
    num_errors += error.empty() ? 0 : 1;
    LSM_EXPECT(
        error.empty() || (error.starts_with("CUDA: ") && error.find('\n') == std::string::npos),
        error);
    LSM_EXPECT(emulated::live_counts().sum() == num_live, "call ", n, ": ",
               emulated::live_counts().sum() - num_live, " things are left: ", error);
    LSM_EXPECT(cudaGetLastError() == cudaSuccess, "call ", n,
               " leaves its error to others: ", error);
  }
  LSM_EXPECT(num_errors > 0, "no error");
}

PlannerCase short_case(uint64_t seed, const char* policy, const char* mode) {
  auto planned = PlannerCase::draw(seed, policy, mode, kNumNodes);
  planned.batches.resize(std::min<size_t>(planned.batches.size(), 4));
  return planned;
}

TEST_CASE("GPU failing calls: planner") {
  const auto planned = short_case(101, "lookahead", "pool");
  check_failures([&] {
    check_plans(planned,
                cache::make_gpu_set_cache(planned.config, planned.scores, kDevice, kTimeoutSecs));
  });
}

/// A decision ends with an error: lines may hold rows that no plan has put there.
TEST_CASE("GPU failing calls: plans after an error") {
  auto planned = short_case(102, "lookahead", "pool");
  const std::vector<int64_t> ids = {5, 6, 7};
  std::string error = "none yet";
  for (int64_t n = 1; !error.empty(); ++n) {
    const auto sets =
        cache::make_gpu_set_cache(planned.config, planned.scores, kDevice, kTimeoutSecs);
    for (int batch = 0; batch < 3; ++batch) sets->push(ids);
    cache::Decisions first, next;
    emulated::fail_call(n);
    error = error_of([&] { sets->decide(0, &first); });
    emulated::fail_call(0);
    std::string refused;
    for (const auto& later : {std::function<void()>([&] { sets->decide(1, &next); }),
                              std::function<void()>([&] { sets->push(ids); })}) {
      try {
        later();
      } catch (const std::runtime_error& found) {
        refused = found.what();
      }
      LSM_EXPECT(refused.empty() == error.empty(), "call ", n, ": ", error, ", then ", refused);
      LSM_EXPECT(error.empty() || refused.starts_with("planner: an earlier batch"), refused);
      refused.clear();
    }
  }
}

TEST_CASE("GPU failing calls: executor") {
  RowFiles files({kNumNodes, 48, 4096, 1});
  const auto planned = short_case(304, "lookahead", "pool");
  for (const auto& make : {make_executor, make_planning_executor}) {
    check_failures([&] { check_rows(planned, 4, files, make); });
  }
}

/// A replay ends with an error, and the next plan finds the rows that it was to keep in lines.
TEST_CASE("GPU failing calls: rows after an error") {
  constexpr int64_t kRowBytes = 48;
  const std::vector<int64_t> ids = {5, 6, 7};
  RowFiles files({10, kRowBytes, 4096, 1});
  const auto storage = files.open("posix");
  const PinnedBlock staged(ids.size() * kRowBytes);
  for (size_t i = 0; i < staged.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    staged.data()[i] = byte_of(ids[i / kRowBytes], at % kRowBytes);
  }
  const std::vector<std::byte> expected(staged.data(), staged.data() + staged.size());
  cache::Plan plan, next;
  plan.ids = next.ids = ids;
  plan.source.assign(ids.size(), RowSource::kStorage);
  plan.slot.assign(ids.size(), -1);
  plan.insert_position = {0, 1, 2};
  plan.insert_line = next.slot = {4, 0, 9};
  next.iteration = 1;
  next.source.assign(ids.size(), RowSource::kCache);
  plan.count_sources();
  next.count_sources();
  const GpuBytes out(expected.size());
  std::string error = "none yet";
  for (int64_t n = 1; !error.empty(); ++n) {
    const auto executor = make_gpu_executor({.num_lines = 10}, *storage, {}, {}, kDevice);
    const std::span<std::byte> rows(out.data(), expected.size());
    emulated::fail_call(n);
    error = error_of([&] { executor->replay(plan, {staged.data(), staged.size()}, rows); });
    emulated::fail_call(0);
    try {
      executor->replay(next, {}, rows);
      executor->synchronize();
      LSM_EXPECT(out.fetch() == expected, "call ", n, ": rows after an error");
    } catch (const Failure&) {
      throw;
    } catch (const std::runtime_error& refused) {
      const std::string message = refused.what();
      LSM_EXPECT(!error.empty() && message.starts_with("executor: an earlier plan"), message);
    }
  }
}

TEST_CASE("GPU failing calls: gather") {
  constexpr int64_t kNumRows = 40, kRowBytes = 100;
  std::vector<int64_t> ids(kNumRows);
  std::iota(ids.rbegin(), ids.rend(), 0);
  const std::vector<int32_t> to(ids.begin(), ids.end());
  std::vector<std::byte> rows;
  for (int64_t i = 0; i < kNumRows * kRowBytes; ++i) {
    rows.push_back(byte_of(i / kRowBytes, i % kRowBytes));
  }
  check_failures([&] {
    const CudaStream stream(kDevice);
    const GpuBytes near(rows), wanted(bytes_of(ids)), out(rows.size()), back(rows.size());
    gather_on_gpu({near.data(), wanted.as<int64_t>(), out.data(), nullptr, kNumRows, kRowBytes},
                  LineLocks::kNone, kDevice, reinterpret_cast<intptr_t>(stream.get()));
    check_cuda(cudaStreamSynchronize(stream.get()), "gather");
    const auto scatter = make_gpu_scatter(kDevice, kTimeoutSecs);
    scatter->scatter({out.data(), kNumRows}, {}, {back.data(), kNumRows}, to, kRowBytes);
    scatter->synchronize();
    LSM_EXPECT(back.fetch() == rows, "rows");
  });
}

TEST_CASE("GPU failing calls: sampler") {
  SampledTypes types{{60}, {}};
  Random random(3);
  SampledGraph graph{{0}, {}};
  for (int64_t i = 0; i < 60 * 8; ++i) {
    graph.indices.push_back(static_cast<int32_t>(random.between(0, 59)));
    if (i % 8 == 7) graph.indptr.push_back(i + 1);
  }
  types.edges.push_back({graph, 0, 0, {3, 2}});
  const auto host =
      make_typed_sampler(types.num_nodes, edges_of(types), 1, types.sampling, options_of(types));
  const std::vector<int64_t> seeds = {3, 50, 21, 8};
  for (const bool is_near : {false, true}) {
    check_failures([&] {
      PlacedSampler sampler(types, is_near, false);
      for (uint64_t iteration = 0; iteration < 2; ++iteration) {
        check_sample(*host, sampler, {0, seeds, {}}, {1, 2, iteration, 3});
      }
    });
  }
}

TEST_CASE("GPU failing calls: memory of batches") {
  check_failures([] {
    const auto pool = std::make_shared<comm::GpuPool>(comm::make_gpu_memory(kDevice), 4096, 2);
    auto batch = pool->take(3000);
    const auto mapped = comm::make_gpu_memory(kDevice)->map(batch->block().handle(), batch->size());
    batch.reset();
    pool->take(3000);
    const auto make = [](size_t bytes, size_t headroom) {
      return std::make_unique<LockedBlock>(bytes + headroom, kDevice);
    };
    const auto locked = std::make_shared<LockedPool>(size_t{1} << 20, make);
    locked->take(5000).reset();
    locked->take(4900);
  });
}

/// The first use of a device makes its pool, which stays.
TEST_CASE("GPU failing calls: pool of a device") {
  constexpr int kOther = 0;
  const CudaStream stream(kOther);
  const int64_t num_pools = emulated::live_counts().pools;
  int64_t n = 0;
  void* memory = nullptr;
  for (; memory == nullptr && n < 10; ++n) {
    emulated::fail_call(n + 1);
    error_of([&] { memory = allocate_in_stream(kOther, 100, stream.get()); });
    LSM_EXPECT(emulated::live_counts().pools <= num_pools + 1, "call ", n, " leaves a pool");
  }
  emulated::fail_call(0);
  free_in_stream(memory, stream.get());
  LSM_EXPECT(n > 1, "no call");
}

/// Queues that kernels work, and buffers in GPU memory that a drive writes to.
TEST_CASE("GPU failing calls: nvme") {
  constexpr int64_t kNumRows = 40;
  constexpr int64_t kRowBytes = 512;
  RowFiles files({kNumRows, kRowBytes, 4096, 1});
  std::vector<int64_t> ids(kNumRows);
  std::iota(ids.begin(), ids.end(), 0);
  for (const int submitting : {-1, kDevice}) {
    for (const int landing : {-1, kDevice}) {
      if (submitting < 0 && landing < 0) continue;
      CAPTURE(submitting);
      CAPTURE(landing);
      check_failures([&] {
        read_rows([&] {
          const auto storage = files.open("nvme", {.queue_depth = 8, .num_threads = 1},
                                          {.submission = {submitting, 1}, .gpu = landing});
          std::vector<std::byte> rows(ids.size() * kRowBytes);
          const RowRead wanted{ids, {}, rows};
          storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
          for (size_t i = 0; i < ids.size(); ++i) {
            LSM_EXPECT(is_row(std::span(rows).subspan(i * kRowBytes, kRowBytes), ids[i]), "row ",
                       i);
          }
        });
      });
    }
  }
}

TEST_CASE("GPU failing calls: embeddings") {
  constexpr int64_t kNumEntities = 12, kNumQueries = 5, kDim = 40;
  std::vector<float> values(kNumEntities * kDim);
  std::iota(values.begin(), values.end(), -200.f);
  std::vector<float> expected(kNumQueries * kNumEntities);
  distances_by_twin({Comparator::kManhattan, 1, kNumQueries, kNumEntities, kDim, values.data(),
                     nullptr, values.data()},
                    expected.data());
  check_failures([&] {
    const CudaStream stream(kDevice);
    const GpuBytes near(bytes_of(values)), scores(expected.size() * sizeof(float));
    distances_on_gpu({Comparator::kManhattan, 1, kNumQueries, kNumEntities, kDim, near.as<float>(),
                      nullptr, near.as<float>()},
                     scores.as<float>(), kDevice, reinterpret_cast<intptr_t>(stream.get()));
    check_cuda(cudaStreamSynchronize(stream.get()), "distances");
    LSM_EXPECT(std::ranges::equal(scores.fetch(), bytes_of(expected)), "scores");
  });
}

}  // namespace

}  // namespace lsm::testing
