// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory of more than 2^32 bytes, of which a few rows are touched.
#include <doctest/doctest.h>

#include <cstring>

#include "kernels/gather/gpu_gather.h"
#include "tests/emulated/tests.h"

namespace lsm::testing {
namespace {

constexpr int64_t kRowBytes = 4096, kNumRows = 1'100'000;
// Their offsets have 31 bits, 32 and 33.
const std::vector<int64_t> kPlaces = {3, 600'000, kNumRows - 1};

std::vector<std::byte> rows_of(const std::vector<int64_t>& ids) {
  std::vector<std::byte> rows;
  for (const int64_t id : ids) {
    for (int64_t i = 0; i < kRowBytes; ++i) rows.push_back(byte_of(id, i));
  }
  return rows;
}

TEST_CASE("GPU large memory: gathers") {
  const GpuBytes rows(kNumRows * kRowBytes), wanted(bytes_of(kPlaces));
  const std::vector<std::byte> expected = rows_of(kPlaces);
  const CudaStream stream(kDevice);
  for (size_t i = 0; i < kPlaces.size(); ++i) {
    check_cuda(
        cudaMemcpyAsync(rows.data() + kPlaces[i] * kRowBytes, expected.data() + i * kRowBytes,
                        kRowBytes, cudaMemcpyHostToDevice, stream.get()),
        "fill a row");
  }
  const GpuBytes out(expected.size());
  gather_on_gpu({rows.data(), wanted.as<int64_t>(), out.data(), nullptr,
                 static_cast<int64_t>(kPlaces.size()), kRowBytes},
                LineLocks::kNone, kDevice, reinterpret_cast<intptr_t>(stream.get()));
  check_cuda(cudaStreamSynchronize(stream.get()), "gather");
  LSM_EXPECT(out.fetch() == expected, "rows of a gather");
}

/// Rows enter lines far from each other, and are read from there.
TEST_CASE("GPU large memory: lines") {
  const std::vector<int64_t> ids = {5, 6, 7};
  RowFiles files({10, kRowBytes, 4096, 1});
  const auto storage = files.open("posix");
  const auto executor = make_gpu_executor({.num_lines = kNumRows}, *storage, {}, {}, kDevice);
  const std::vector<std::byte> expected = rows_of(ids);
  const PinnedBlock staged(expected.size());
  std::memcpy(staged.data(), expected.data(), expected.size());
  cache::Plan plan;
  plan.ids = ids;
  plan.source.assign(ids.size(), RowSource::kStorage);
  plan.slot.assign(ids.size(), -1);
  plan.insert_position = {0, 1, 2};
  plan.insert_line = kPlaces;
  plan.count_sources();
  const GpuBytes first(expected.size()), second(expected.size());
  executor->replay(plan, {staged.data(), staged.size()}, {first.data(), staged.size()});
  cache::Plan next;
  next.iteration = 1;
  next.ids = ids;
  next.source.assign(ids.size(), RowSource::kCache);
  next.slot = kPlaces;
  next.count_sources();
  executor->replay(next, {}, {second.data(), staged.size()});
  executor->synchronize();
  LSM_EXPECT(first.fetch() == expected, "rows of storage");
  LSM_EXPECT(second.fetch() == expected, "rows of lines");
}

}  // namespace

}  // namespace lsm::testing
