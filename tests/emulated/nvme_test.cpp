// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Reads that kernels submit and complete, from the emulated controller.
#include <doctest/doctest.h>
#include <numeric>
#include <thread>

#include "kernels/core/deadline.h"
#include "kernels/io/nvme/engine/gpu_landing.h"
#include "kernels/io/nvme/engine/gpu_measure.h"
#include "kernels/io/nvme/engine/read_worker.h"
#include "kernels/io/nvme/gpu/gpu_arrays.h"
#include "kernels/io/nvme/transport/libnvm_transport.h"
#include "tests/emulated/tests.h"
#include "tests/native/fake_libnvm.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

constexpr int64_t kDriveRows = 1200;

/// Many times the queue's depth over two controllers, out of order, so that queues wrap; rows that
/// straddle blocks; transfers with PRP lists and without.
TEST_CASE("GPU nvme: reads") {
  for (const int64_t row_bytes : {100, 4096, 9000}) {
    RowFiles files({kDriveRows, row_bytes, 4096, 2});
    for (const int num_blocks : {0, 1}) {
      const EngineOptions options{.queue_depth = 48, .num_threads = 2};
      nvme::NvmeOptions nvme{.submission = {kDevice, num_blocks}};
      nvme.transport.emulated.num_controllers = 2;
      nvme.transport.emulated.controller.faults.reorder = true;
      const auto storage = files.open("nvme", options, nvme);
      Random random(4);
      for (int round = 0; round < 2; ++round) {
        std::vector<int64_t> ids;
        for (int64_t i = 0; i < (is_part() ? 150 : 400); ++i) {
          ids.push_back(random.between(0, kDriveRows - 1));
        }
        std::vector<std::byte> rows(ids.size() * static_cast<size_t>(row_bytes));
        const RowRead wanted{ids, {}, rows};
        storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
        for (size_t i = 0; i < ids.size(); ++i) {
          const auto row = std::span(rows).subspan(i * static_cast<size_t>(row_bytes), row_bytes);
          LSM_EXPECT(is_row(row, ids[i]), "row ", ids[i], " of ", row_bytes, " bytes");
        }
      }
    }
  }
}

/// Rows in `memory`, from its first byte on.
void expect_rows(std::span<const std::byte> memory, const std::vector<int64_t>& ids,
                 int64_t row_bytes) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = memory.subspan(i * static_cast<size_t>(row_bytes), row_bytes);
    LSM_EXPECT(is_row(row, ids[i]), "row ", ids[i], " of ", row_bytes, " bytes");
  }
}

std::vector<int64_t> some_ids(Random& random, int64_t num_ids, int64_t num_rows) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < num_ids; ++i) ids.push_back(random.between(0, num_rows - 1));
  return ids;
}

/// A drive writes to buffers in GPU memory; from there rows go to GPU memory and to the host's.
TEST_CASE("GPU nvme: reads land in GPU memory") {
  for (const int64_t row_bytes : {99, 100, 4096, 9000}) {
    RowFiles files({kDriveRows, row_bytes, 4096, 2});
    for (const int submitting : {-1, kDevice}) {
      const EngineOptions options{.queue_depth = 24, .num_threads = 2};
      nvme::NvmeOptions nvme{.submission = {submitting, 1}, .gpu = kDevice};
      nvme.transport.emulated.num_controllers = 2;
      nvme.command_timeout_secs =
          kTimeoutSecs;  // compute-sanitizer takes 10 s for the first copies
      const auto storage = files.open("nvme", options, nvme);
      Random random(4);
      const auto ids = some_ids(random, is_part() ? 40 : 150, kDriveRows);
      const size_t bytes = ids.size() * static_cast<size_t>(row_bytes);
      const GpuBytes near(bytes);
      std::vector<std::byte> far(bytes);
      const RowRead wanted[] = {{ids, {}, {near.data(), bytes}, true}, {ids, {}, far}};
      for (const auto& request : storage->submit(wanted)) request->wait(kTimeoutSecs);
      expect_rows(near.fetch(), ids, row_bytes);
      expect_rows(far, ids, row_bytes);
    }
  }
}

/// The same through the kernel module libnvm, played, which maps pages of the GPU's for the drive;
/// its controller finds only those.
TEST_CASE("GPU nvme: reads land in GPU memory under libnvm") {
  constexpr int64_t kRowBytes = 4096;
  std::vector<std::byte> image(kDriveRows * kRowBytes);
  for (int64_t id = 0; id < kDriveRows; ++id) {
    for (int64_t b = 0; b < kRowBytes; ++b) image[id * kRowBytes + b] = byte_of(id, b);
  }
  const auto module = std::make_shared<FakeModuleState>();
  std::vector<nvme::EmulatedNamespace> namespaces = {
      {nvme::make_gpu_blocks(std::make_shared<nvme::MemoryBlocks>(image), kDevice), 512}};
  const auto node = [&] {
    return std::make_unique<FakeLibnvmNode>(module, nvme::ControllerOptions{}, namespaces);
  };
  {
    nvme::Controller controller(std::make_unique<nvme::LibnvmTransport>(node()), 20);
    const nvme::NamespaceInfo space = controller.identify_namespace(1);
    ReadStats stats;
    FaultInjector faults;
    nvme::ReadWorker worker(controller, {.depth = 16, .max_read_bytes = 32 << 10, .gpu = kDevice},
                            stats, faults);
    LSM_EXPECT(module->device.size() == 1, module->device.size(), " mappings of the GPU's memory");
    Random random(5);
    const auto ids = some_ids(random, is_part() ? 40 : 200, kDriveRows);
    const size_t bytes = ids.size() * kRowBytes;
    const GpuBytes rows(bytes);
    const RowRead read{ids, {}, {rows.data(), bytes}, true};
    const auto request = std::make_shared<Request>(rows.data(), "rows", true);
    ReadQueue queue;
    queue.push(std::make_shared<ReadGroup>(
        plan_reads({&read, 1}, {kDriveRows, kRowBytes, 4096, 1}, {512, 32 << 10, 0}),
        std::vector{request}, stats.outstanding));
    const std::string path = "/dev/libnvm0";
    std::vector<Claim> claims;
    for (const Deadline deadline(kTimeoutSecs); !request->done();) {
      LSM_EXPECT(!deadline.passed(), "reads did not end");
      claims.clear();
      queue.claim(claims, worker.room(), false);
      for (Claim& claim : claims) worker.add({std::move(claim), &space, &path});
      worker.submit();
      worker.take();
      worker.deliver();
    }
    request->wait(kTimeoutSecs);
    expect_rows(rows.fetch(), ids, kRowBytes);
  }
  LSM_EXPECT(module->device.empty() && module->host.empty(), "mappings are left");
  module->gpu_support = false;
  nvme::Controller controller(std::make_unique<nvme::LibnvmTransport>(node()), 20);
  ReadStats stats;
  FaultInjector faults;
  expect_throw<std::runtime_error>("built without GPU support", [&] {
    nvme::ReadWorker(controller, {.depth = 16, .gpu = kDevice}, stats, faults);
  });
}

/// The measurement compares every byte.
TEST_CASE("GPU nvme: waves") {
  for (const bool into_device_memory : {false, true}) {
    for (const uint32_t num_pages : {1u, 3u}) {
      nvme::WaveOptions options;
      options.device = kDevice;
      options.num_blocks = {1, 3};
      options.num_queues = 6;
      options.depth = 64;
      options.num_reads = 150;
      options.read_bytes = num_pages * 4096;
      options.into_device_memory = into_device_memory;
      options.rounds = 1;
      LSM_EXPECT(nvme::measure_waves(options).size() == 2, "one for each number of blocks");
    }
  }
}

/// The ways of reads that a GPU opens are tried, each after those before it: doorbells of the GPU
/// that do not arrive, and data that do not reach its memory.
TEST_CASE("GPU nvme: a drive that a GPU does not reach") {
  RowFiles files({40, 512, 4096, 1});
  const auto expect_refused = [&](nvme::NvmeOptions nvme, uint64_t after, auto set, auto... words) {
    auto& faults = nvme.transport.emulated.controller.faults;
    faults.after = after;
    set(faults);
    nvme.command_timeout_secs = 0.1;  // a probe waits longer
    for (const char* word : {words...}) {
      expect_throw<std::runtime_error>(word, [&] { files.open("nvme", {}, nvme); });
    }
  };
  const auto lose = [](auto& faults) { faults.loss_rate = 1; };
  const auto lose_data = [](auto& faults) { faults.lost_data_rate = 1; };
  expect_refused({.submission = {kDevice, 1}}, 1, lose, "submitted by GPU", "(ACS)",
                 "storage.submit_from=host");
  expect_refused({.submission = {kDevice, 1}, .gpu = kDevice}, 2, lose_data, "into memory of GPU",
                 "brought no data; PCIe access control (ACS)", "storage.read_to=host");
  expect_refused({.gpu = kDevice}, 1, lose_data, "by the host into memory of GPU");
  expect_refused({.gpu = kDevice}, 0, lose_data, "by the host into host memory", "iommu=pt");
}

/// Kernels' memory, let go by a thread that never chose a device.
TEST_CASE("GPU nvme: let go elsewhere") {
  const CudaStream stream(kDevice);
  std::vector<std::byte> registered(8192);
  auto array = std::make_unique<nvme::GpuArray<int>>(100, stream.get());
  auto range = std::make_unique<nvme::MappedRange>(registered.data(), registered.size(), 0, "map");
  std::thread([&] {
    array.reset();
    range.reset();
  }).join();
}

/// torch.cuda.graph() captures in one thread; another opens a storage, reads and closes it.
TEST_CASE("GPU nvme: work during a capture") {
  constexpr int64_t kRowBytes = 512;
  RowFiles files({40, kRowBytes, 4096, 1});
  const CudaStream training(kDevice);
  check_cuda(cudaStreamBeginCapture(training.get(), cudaStreamCaptureModeGlobal), "capture");
  std::thread([&] {
    const auto storage = files.open("nvme", {}, {.submission = {kDevice, 1}, .gpu = kDevice});
    const std::vector<int64_t> ids = {3, 1, 30};
    std::vector<std::byte> rows(ids.size() * kRowBytes);
    const RowRead wanted{ids, {}, rows};
    storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
    expect_rows(rows, ids, kRowBytes);
  }).join();
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(training.get(), &graph), "end the capture");
}

/// A storage whose queues a GPU works, closed by a thread that never chose a device.
TEST_CASE("GPU nvme: closed elsewhere") {
  RowFiles files({40, 512, 4096, 1});
  auto storage = files.open("nvme", {}, {.submission = {kDevice, 1}});
  const std::vector<int64_t> ids = {3, 1, 30};
  std::vector<std::byte> rows(ids.size() * 512);
  const RowRead wanted{ids, {}, rows};
  storage->submit({&wanted, 1}).front()->wait(kTimeoutSecs);
  std::thread([&] { storage.reset(); }).join();
  LSM_EXPECT(is_row(std::span(rows).first(512), 3), "row 3");
}

}  // namespace

}  // namespace lsm::testing
