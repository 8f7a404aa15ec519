// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Two GPUs of one process, and the pages that are locked: only the emulated runtime has both.
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "comm/gpu_memory.h"
#include "kernels/core/cuda_info.h"
#include "kernels/core/page_lock.h"
#include "kernels/gather/gpu_gather.h"
#include "tests/emulated/runtime/memory.h"
#include "tests/emulated/tests.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

/// An owner's kernel on the other GPU writes into a batch that it has mapped.
TEST_CASE("GPU memory: mapped batches") {
  constexpr int64_t kRowBytes = 100, kNumRows = 64;
  constexpr int kOwner = 0;
  const auto requester = comm::make_gpu_memory(kDevice);
  const auto batch = requester->allocate(kNumRows * kRowBytes);
  const auto owner = comm::make_gpu_memory(kOwner);
  const auto mapped = owner->map(batch->handle(), batch->size());
  use_device(kOwner);
  const CudaStream stream(kOwner);
  const PinnedBlock rows(kNumRows * kRowBytes), ids(kNumRows * sizeof(int64_t));
  for (int64_t i = 0; i < kNumRows * kRowBytes; ++i) {
    rows.data()[i] = byte_of(i / kRowBytes, i % kRowBytes);
  }
  auto* const wanted = reinterpret_cast<int64_t*>(ids.data());
  for (int64_t i = 0; i < kNumRows; ++i) wanted[i] = kNumRows - 1 - i;
  gather_on_gpu({rows.data(), wanted, mapped->data(), nullptr, kNumRows, kRowBytes},
                LineLocks::kNone, kOwner, reinterpret_cast<intptr_t>(stream.get()));
  check_cuda(cudaStreamSynchronize(stream.get()), "write to another GPU");
  use_device(kDevice);
  const CudaStream own(kDevice);
  std::vector<std::byte> fetched(kNumRows * kRowBytes);
  check_cuda(cudaMemcpyAsync(fetched.data(), batch->data(), fetched.size(), cudaMemcpyDeviceToHost,
                             own.get()),
             "fetch a batch");
  for (int64_t i = 0; i < kNumRows; ++i) {
    LSM_EXPECT(is_row({fetched.data() + i * kRowBytes, kRowBytes}, kNumRows - 1 - i), i);
  }
}

/// A mapping that is let go by a thread which is on the GPU whose memory it is.
TEST_CASE("GPU memory: ended elsewhere, mapped") {
  constexpr int kOther = 0;
  const auto batch = comm::make_gpu_memory(kOther)->allocate(1000);
  end_elsewhere(comm::make_gpu_memory(kDevice)->map(batch->handle(), batch->size()));
}

/// Page-locked memory has the size that was asked for, and comes from the pool again.
TEST_CASE("GPU memory: page-locked memory has its size") {
  constexpr size_t kBytes = (size_t{17} << 20) + 100;
  const auto make = [](size_t bytes, size_t) {
    return std::make_unique<LockedBlock>(bytes, kDevice);
  };
  const auto pool = std::make_shared<LockedPool>(size_t{64} << 20, make);
  auto buffer = pool->take(kBytes);
  const std::byte* const first = buffer->data();
  LSM_EXPECT(emulated::is_reachable(first, kBytes), "not all is locked");
  LSM_EXPECT(!emulated::is_reachable(first, kBytes + 1), "more is locked");
  buffer.reset();
  LSM_EXPECT(pool->take(kBytes - 5)->data() == first, "a block that came back");
  {
    const LockedBlock alone(kBytes, kDevice);
    LSM_EXPECT(emulated::is_reachable(alone.data(), kBytes), "not all is locked");
  }
  std::thread([&] { pool->take(2 * kBytes); }).join();
}

TEST_CASE("GPU memory: devices") {
  const CudaInfo info = find_cuda();
  LSM_EXPECT(info.problem.empty() && info.gpus.size() == 2, info.problem);
  LSM_EXPECT(comm::peer_access_problem(0, info.gpus[1].bus_id).empty(), info.gpus[1].bus_id);
  LSM_EXPECT(!comm::peer_access_problem(0, "0000:77:00.0").empty(), "no such GPU");
}

}  // namespace

}  // namespace lsm::testing
