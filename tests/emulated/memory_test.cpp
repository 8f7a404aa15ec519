// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that comes back.
#include <doctest/doctest.h>
#include <cuda/atomic>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/gpu_memory.h"
#include "comm/gpu_pool.h"
#include "kernels/core/backend_array.h"
#include "kernels/core/cuda_backend.h"
#include "kernels/core/deadline.h"
#include "kernels/core/macros.h"
#include "kernels/core/page_lock.h"
#include "kernels/gather/gpu_gather.h"
#include "kernels/gather/gpu_scatter.h"
#include "tests/emulated/tests.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

/// Batches are used in the default stream, are let go before that is done, and their memory comes
/// round: no batch has another's rows.
TEST_CASE("GPU memory: pool") {
  constexpr int64_t kRowBytes = 512, kMaxRows = 800;
  use_device(kDevice);
  const auto pool = std::make_shared<comm::GpuPool>(comm::make_gpu_memory(kDevice),
                                                    2 * kMaxRows * kRowBytes, kTimeoutSecs);
  Random random(3);
  std::vector<std::byte> rows(kMaxRows * kRowBytes);
  for (int64_t i = 0; i < kMaxRows * kRowBytes; ++i)
    rows[i] = byte_of(i / kRowBytes, i % kRowBytes);
  const GpuBytes source(rows);
  const CudaStream writer(kDevice);
  const int num_rounds = is_part() ? 30 : 150;
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<int64_t> ids = skewed_ids(random, kMaxRows, random.between(1, kMaxRows));
    const GpuBytes wanted(bytes_of(ids));
    auto batch = pool->take(ids.size() * kRowBytes);
    const PinnedBlock fetched(batch->size());
    use_device(kDevice);
    gather_on_gpu({source.data(), wanted.as<int64_t>(), batch->data(), nullptr,
                   static_cast<int64_t>(ids.size()), kRowBytes},
                  LineLocks::kNone, kDevice, 0);
    check_cuda(cudaMemcpyAsync(fetched.data(), batch->data(), batch->size(), cudaMemcpyDeviceToHost,
                               nullptr),
               "fetch a batch");
    batch.reset();
    const auto next = pool->take(100);  // may be where the batch was, and is written by others
    use_device(kDevice);
    check_cuda(cudaMemsetAsync(next->data(), round, next->size(), writer.get()), "write a batch");
    check_cuda(cudaStreamSynchronize(nullptr), "fetch a batch");
    check_cuda(cudaStreamSynchronize(writer.get()), "write a batch");
    for (size_t i = 0; i < ids.size(); ++i) {
      LSM_EXPECT(is_row({fetched.data() + i * kRowBytes, kRowBytes}, ids[i]), "round ", round);
    }
  }
}

/// Does not end before the host says so.
struct Training {
  uint32_t* may_end;
  LSM_HOST_DEVICE void operator()(int64_t) const {
#if defined(__CUDA_ARCH__)
    const cuda::atomic_ref<uint32_t, cuda::thread_scope_system> said(*may_end);
    while (said.load(cuda::memory_order_acquire) == 0) __nanosleep(1000);
#endif
  }
};

/// Says so when it goes away; and after kTimeoutSecs, so that a wait for the training ends.
class TrainingEnd {
 public:
  explicit TrainingEnd(uint32_t* may_end) : may_end_(may_end) {}
  ~TrainingEnd() { say(); }
  void say() { std::atomic_ref(*may_end_).store(1); }
  bool was_late() const { return was_late_; }

 private:
  uint32_t* const may_end_;
  std::atomic<bool> was_late_ = false;
  std::jthread watch_{[this](const std::stop_token& stop) {
    for (const Deadline deadline(kTimeoutSecs / 3); !stop.stop_requested();) {
      if (deadline.passed()) {
        was_late_ = true;
        return say();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }};
};

/// Numbers that the GPU sorts, in memory that grows; also CUB's does.
class SortedNumbers {
 public:
  explicit SortedNumbers(CudaBackend& backend) : backend_(backend) {}

  /// Sorts `count` numbers. They have arrived when the backend has been waited for.
  void sort(int64_t count) {
    numbers_.resize(count);
    std::iota(numbers_.rbegin(), numbers_.rend(), 0u);
    const uint32_t* const keys = keys_.upload(numbers_);
    backend_.sort_pairs(keys, sorted_.grow(count), keys, values_.grow(count), count, 32);
    backend_.download(numbers_.data(), sorted_.data(), count * sizeof(uint32_t));
  }

  void check() const {
    for (uint32_t i = 0; i < numbers_.size(); ++i) {
      LSM_EXPECT(numbers_[i] == i, numbers_[i], " at ", i);
    }
  }

 private:
  CudaBackend& backend_;
  BackendArray<uint32_t, CudaBackend> keys_{backend_}, sorted_{backend_}, values_{backend_};
  std::vector<uint32_t> numbers_;
};

void grow_and_sort(CudaBackend& backend) {
  SortedNumbers numbers(backend);
  BackendArray<std::byte, CudaBackend> large(backend);
  for (const int64_t count : {10, 1000, 5000, 20'000}) {
    numbers.sort(count);
    large.upload(std::vector<std::byte>(400 * count));  // also the memory it passes through
    large.upload(std::vector<std::byte>(400 * count));
    backend.synchronize();
    numbers.check();
  }
}

/// A kernel of another stream runs from the first growth to the last.
TEST_CASE("GPU memory: growth waits for nothing else") {
  use_device(kDevice);
  {
    CudaBackend backend(kDevice, kTimeoutSecs);
    backend.enter();
    grow_and_sort(backend);  // where CUDA loads a kernel, at its first launch, it waits for others
  }
  const CudaStream training(kDevice);
  const PinnedBlock block(sizeof(uint32_t));
  auto* const may_end = reinterpret_cast<uint32_t*>(block.data());
  *may_end = 0;
  TrainingEnd end(may_end);
  {
    CudaBackend backend(kDevice, kTimeoutSecs);
    backend.enter();
    CudaLauncher(training.get()).for_each(1, Training{may_end});
    grow_and_sort(backend);
    end.say();
  }
  use_device(kDevice);
  check_cuda(cudaStreamSynchronize(training.get()), "end training");
  LSM_EXPECT(!end.was_late(), "growth waited for the training");
}

/// Freed memory stays in the pool until it is trimmed; memory in use stays in any case.
TEST_CASE("GPU memory: trimmed") {
  constexpr int64_t kBytes = 64 << 20;
  use_device(kDevice);
  const CudaStream stream(kDevice);
  const auto wait = [&] { check_cuda(cudaStreamSynchronize(stream.get()), "use a pool"); };
  void* const kept = allocate_in_stream(kDevice, 100, stream.get());
  wait();
  trim_memory(kDevice);
  const StreamPoolBytes before = stream_pool_bytes(kDevice);
  LSM_EXPECT(before.used >= 100 && before.reserved >= before.used, before.used);
  void* const idle = allocate_in_stream(kDevice, kBytes, stream.get());
  wait();
  const StreamPoolBytes full = stream_pool_bytes(kDevice);
  LSM_EXPECT(full.used >= before.used + kBytes, full.used, " after ", before.used);
  LSM_EXPECT(full.reserved >= full.used, full.reserved, " for ", full.used);
  free_in_stream(idle, stream.get());
  wait();
  const StreamPoolBytes freed = stream_pool_bytes(kDevice);
  LSM_EXPECT(freed.used == before.used, freed.used, " after ", before.used);
  LSM_EXPECT(freed.reserved == full.reserved, freed.reserved, " of ", full.reserved);
  trim_memory(kDevice);
  const StreamPoolBytes trimmed = stream_pool_bytes(kDevice);
  LSM_EXPECT(trimmed.reserved <= before.reserved, trimmed.reserved, " after ", before.reserved);
  LSM_EXPECT(trimmed.used == before.used, trimmed.used, " after ", before.used);
  free_in_stream(kept, stream.get());
  wait();
  constexpr int kNoDevice = 1000;  // asking makes no pool
  LSM_EXPECT(stream_pool_bytes(kNoDevice).reserved == 0, "a pool of no device");
}

/// More than bounce memory holds, on the way to the GPU and back, without a wait of the caller's.
TEST_CASE("GPU memory: bounce memory") {
  constexpr size_t kBytes = size_t{32} << 20;
  CudaBackend backend(kDevice, kTimeoutSecs);
  backend.enter();
  std::vector<std::unique_ptr<BackendArray<std::byte, CudaBackend>>> arrays;
  std::vector<std::byte> bytes(kBytes + 1000);
  for (int number = 0; number < 3; ++number) {
    auto& array =
        arrays.emplace_back(std::make_unique<BackendArray<std::byte, CudaBackend>>(backend));
    std::memset(bytes.data(), number, bytes.size());
    array->upload(bytes);
  }
  std::vector<std::vector<std::byte>> fetched(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    fetched[i].resize(kBytes);
    backend.download(fetched[i].data(), arrays[i]->data(), kBytes);
  }
  backend.synchronize();
  for (size_t i = 0; i < fetched.size(); ++i) {
    std::memset(bytes.data(), static_cast<int>(i), kBytes);
    LSM_EXPECT(std::memcmp(fetched[i].data(), bytes.data(), kBytes) == 0, "array ", i);
  }
}

/// Owners that are let go by threads which never chose a device.
TEST_CASE("GPU memory: ended elsewhere") {
  const auto planned = PlannerCase::draw(7, "lookahead", "pool", kNumNodes);
  RowFiles files({kNumNodes, 48, 4096, 1});
  const auto storage = files.open("posix");
  end_elsewhere(make_gpu_executor({.num_lines = 20, .victim_slots = 9, .prefetch_rows = 3},
                                  *storage, planned.static_ids, planned.constant_ids, kDevice));
  end_elsewhere(cache::make_gpu_set_cache(planned.config, planned.scores, kDevice, kTimeoutSecs));
  end_elsewhere(make_gpu_scatter(kDevice, kTimeoutSecs));
  end_elsewhere(std::make_unique<LockedBlock>(5000, kDevice));
  end_elsewhere(comm::make_gpu_memory(kDevice)->allocate(5000));
  auto backend = std::make_unique<CudaBackend>(kDevice, kTimeoutSecs);
  backend->enter();
  auto numbers = std::make_unique<SortedNumbers>(*backend);
  numbers->sort(100);
  std::thread([&] {
    backend->enter();
    numbers.reset();
  }).join();
  end_elsewhere(std::move(backend));
}

/// torch.cuda.graph() captures in one thread; batches are made in another, and memory grows.
TEST_CASE("GPU memory: work during a capture") {
  use_device(kDevice);
  const CudaStream training(kDevice);
  const auto pool =
      std::make_shared<comm::GpuPool>(comm::make_gpu_memory(kDevice), 4096, kTimeoutSecs);
  check_cuda(cudaStreamBeginCapture(training.get(), cudaStreamCaptureModeGlobal), "capture");
  std::thread([&] {
    CudaBackend backend(kDevice, kTimeoutSecs);
    backend.enter();
    SortedNumbers numbers(backend);
    for (const int64_t count : {10, 1000}) {
      numbers.sort(count);
      backend.synchronize();
      numbers.check();
      auto batch = pool->take(4096 * count);
      batch.reset();
      const LockedBlock staged(4096 * count, kDevice);
    }
  }).join();
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(training.get(), &graph), "end the capture");
}

/// A pool holds hardly more than its buffers while what a batch reads becomes less, and settles.
TEST_CASE("GPU memory: page-locked memory follows what is read") {
  constexpr size_t kInFlight = 6;
  constexpr int64_t kFirstBytes = 4 << 20;
  size_t num_made = 0;
  const auto make = [&](size_t bytes, size_t headroom) {
    ++num_made;
    return std::make_unique<LockedBlock>(bytes + headroom, kDevice);
  };
  constexpr size_t kIdle = size_t{2} * kFirstBytes;
  const auto pool = std::make_shared<LockedPool>(kIdle, make);
  Random random(11);
  std::deque<std::shared_ptr<LockedBuffer>> in_flight;
  size_t num_made_before = 0;
  for (int64_t t = 0; t < 400; ++t) {
    if (in_flight.size() == kInFlight) in_flight.pop_front();
    // From all rows to a third of them, then a few percent more or less.
    const int64_t mean = kFirstBytes - kFirstBytes * 2 / 3 * std::min<int64_t>(t, 100) / 100;
    const int64_t bytes = mean + random.between(-mean / 20, mean / 20);
    in_flight.push_back(pool->take(static_cast<size_t>(bytes)));
    const size_t locked = in_flight.back()->block().capacity();
    LSM_EXPECT(locked <= (static_cast<size_t>(bytes) + (64 << 10)) * 9 / 8, locked, " for ", bytes);
    if (t == 200) num_made_before = num_made;
  }
  LSM_EXPECT(num_made - num_made_before <= 2 * kInFlight, num_made - num_made_before);
}

}  // namespace

}  // namespace lsm::testing
