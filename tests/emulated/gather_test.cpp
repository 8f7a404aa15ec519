// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Gathers and scatters of rows of all sizes, as the host does them.
#include <doctest/doctest.h>
#include <numeric>

#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"
#include "kernels/gather/scatter.h"
#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

const std::vector<int64_t>& row_sizes() {
  static const std::vector<int64_t> kAll = {1,   2,    3,    4,    7,    8,    15,  16,
                                            20,  31,   48,   64,   100,  200,  300, 512,
                                            516, 1000, 1023, 1024, 1025, 2047, 4096};
  static const std::vector<int64_t> kPart = {1, 20, 200, 300, 1024, 1040};
  return is_part() ? kPart : kAll;
}

std::vector<std::byte> random_bytes(Random& random, size_t bytes) {
  std::vector<std::byte> drawn(bytes);
  for (std::byte& byte : drawn) byte = static_cast<std::byte>(random.next() >> 56);
  return drawn;
}

/// Rows of the GPU's memory and page-locked ones, behind an offset that breaks their alignment.
TEST_CASE("GPU gathers") {
  constexpr int64_t kNumRows = 70, kCount = 150;
  Random random(1);
  const CudaStream stream(kDevice);
  for (const int64_t row_bytes : row_sizes()) {
    for (const int64_t offset : {0, 4, 9}) {
      const std::vector<std::byte> rows =
          random_bytes(random, static_cast<size_t>(kNumRows * row_bytes + offset));
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < kCount; ++i) ids.push_back(random.between(0, kNumRows - 1));
      std::vector<std::byte> expected;
      for (const int64_t id : ids) {
        const auto row = rows.begin() + offset + id * row_bytes;
        expected.insert(expected.end(), row, row + row_bytes);
      }
      const GpuBytes near(rows), wanted(bytes_of(ids));
      const PinnedBlock far(rows.size());
      std::memcpy(far.data(), rows.data(), rows.size());
      const GpuBytes references(bytes_of(std::vector<uint32_t>(kNumRows)));
      for (const auto locks : {LineLocks::kNone, LineLocks::kDevice, LineLocks::kSystem}) {
        for (const std::byte* source : {near.data(), far.data()}) {
          const GpuBytes out(expected.size());
          gather_on_gpu({source + offset, wanted.as<int64_t>(), out.data(),
                         references.as<uint32_t>(), kCount, row_bytes},
                        locks, kDevice, reinterpret_cast<intptr_t>(stream.get()));
          check_cuda(cudaStreamSynchronize(stream.get()), "gather");
          LSM_EXPECT(out.fetch() == expected, row_bytes, " bytes from offset ", offset);
        }
      }
      const std::vector<std::byte> held = references.fetch();
      LSM_EXPECT(std::ranges::all_of(held, [](std::byte b) { return b == std::byte{0}; }),
                 "references are given back");
    }
  }
}

TEST_CASE("GPU scatters") {
  constexpr int64_t kFrom = 60, kTo = 90;
  Random random(2);
  ThreadPool pool(1);
  for (const int64_t row_bytes : row_sizes()) {
    const auto scattering = make_gpu_scatter(kDevice, kTimeoutSecs);
    auto source = random_bytes(random, static_cast<size_t>(kFrom * row_bytes));
    auto target = random_bytes(random, static_cast<size_t>(kTo * row_bytes));
    const GpuBytes near_source(source);
    const GpuBytes near_target(target);
    std::vector<int32_t> from, to(static_cast<size_t>(kTo));
    std::iota(to.begin(), to.end(), 0);
    for (size_t i = to.size() - 1; i > 0; --i) {
      std::swap(to[i], to[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
    }
    to.resize(40);
    for (size_t i = 0; i < to.size(); ++i) {
      from.push_back(static_cast<int32_t>(random.between(0, kFrom - 1)));
    }
    scatter_rows({source.data(), kFrom}, from, {target.data(), kTo}, to, row_bytes, pool);
    scattering->scatter({near_source.data(), kFrom}, from, {near_target.data(), kTo}, to,
                        row_bytes);
    // A second one, while the first may be under way, so that what it was given is used again.
    scatter_rows({source.data(), kFrom}, {}, {target.data(), kTo}, std::span(to).first(0),
                 row_bytes, pool);
    scattering->scatter({near_source.data(), kFrom}, {}, {near_target.data(), kTo}, {}, row_bytes);
    scattering->synchronize();
    LSM_EXPECT(near_target.fetch() == target, row_bytes, " bytes");
  }
}

}  // namespace

}  // namespace lsm::testing
