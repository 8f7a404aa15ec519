// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Reads that a GPU submits and completes through an emulated controller: every byte is checked, and
// reads per second are printed against the number of thread blocks, synchronous and split. Queues,
// doorbells and buffers are pinned host memory; what the submitters share is the GPU's.
// Usage: nvme_device [most thread blocks]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/io/nvme/controller.h"
#include "kernels/io/nvme/deadline.h"
#include "kernels/io/nvme/device_reads.h"
#include "kernels/io/nvme/emulated/transport.h"

using namespace lsm::nvme;

namespace {

constexpr uint32_t kQueues = 64;
constexpr uint32_t kDepth = 1024;
constexpr uint32_t kBlockBytes = 4096;
constexpr uint32_t kBufferPages = 3;  // so that PRP lists are used
constexpr uint32_t kBlocksPerRead = kBufferPages;
constexpr uint32_t kWaveReads = 32'768;
constexpr double kTimeoutSecs = 20;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

/// Host memory that the GPU reaches at the same address.
template <class T>
T* shared_array(size_t count) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped), "cudaHostAlloc");
  std::memset(memory, 0, count * sizeof(T));
  return static_cast<T*>(memory);
}

template <class T>
T* device_array(size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  check(cudaMemset(memory, 0, count * sizeof(T)), "cudaMemset");
  return static_cast<T*>(memory);
}

/// Makes memory that exists reachable for the GPU, at the address it has.
void pin(void* memory, size_t bytes) {
  check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped), "cudaHostRegister");
}

class Setup {
 public:
  Setup() : image_(64 << 20) {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < image_.size(); i += 8) {
      const uint64_t value = random();
      std::memcpy(&image_[i], &value, 8);
    }
    DeviceOptions options;
    options.num_queues = kQueues;
    controller_ = std::make_unique<Controller>(std::make_unique<EmulatedTransport>(
        "emulated controller", options,
        std::vector<EmulatedNamespace>{{std::make_shared<MemoryBlocks>(image_), kBlockBytes}}));
    controller_->set_num_queues(kQueues);
    Transport& transport = controller_->transport();
    pin(transport.registers(), transport.register_bytes());
    make_queues();
    make_wave(transport);
  }

  const DeviceWave& wave() const { return wave_; }
  uint32_t completed() const { return *static_cast<volatile uint32_t*>(wave_.num_completed); }

  /// New random reads; nothing of the ones before is left.
  void draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    const uint64_t num_blocks = image_.size() / kBlockBytes;
    for (uint32_t i = 0; i < kWaveReads; ++i) {
      blocks_[i] = {1, kBlocksPerRead, random() % (num_blocks - kBlocksPerRead)};
      wave_.statuses[i] = kPending;
    }
    std::memset(data_.data, 0, data_.bytes);
    *wave_.num_completed = 0;
  }

  void verify() const {
    constexpr size_t kBytes = size_t{kBlocksPerRead} * kBlockBytes;
    for (uint32_t i = 0; i < kWaveReads; ++i) {
      if (wave_.statuses[i] != kSuccess) {
        throw std::runtime_error("read " + std::to_string(i) + " has status " +
                                 std::to_string(wave_.statuses[i]));
      }
      const std::byte* expected = image_.data() + blocks_[i].lba * kBlockBytes;
      if (std::memcmp(data_.data + i * kBytes, expected, kBytes) != 0) {
        throw std::runtime_error("read " + std::to_string(i) + " has wrong bytes");
      }
    }
  }

 private:
  void make_queues() {
    auto* pairs = shared_array<QueuePair>(kQueues);
    auto* states = device_array<QueueState>(kQueues);
    auto* published = device_array<uint32_t>(kQueues * kDepth);
    for (uint32_t i = 0; i < kQueues; ++i) {
      queues_.push_back(
          controller_->create_queue(static_cast<uint16_t>(i + 1), {kDepth, 4 * kDepth}));
      QueuePair pair = queues_.back()->pair();
      pin(pair.submission, pair.depth * sizeof(Command));
      pin(pair.completion, pair.completion_depth * sizeof(Completion));
      pair.state = states + i;
      pair.published = published + i * kDepth;
      pairs[i] = pair;
    }
    wave_.queues = pairs;
    wave_.num_queues = kQueues;
  }

  void make_wave(Transport& transport) {
    data_ = transport.allocate(size_t{kWaveReads} * kBufferPages * kPageBytes, DmaShape::kPages);
    lists_ = transport.allocate(size_t{kWaveReads} * kPageBytes, DmaShape::kPages);
    pin(lists_.data, lists_.bytes);
    auto* pages = shared_array<uint64_t>(data_.pages.size());
    std::memcpy(pages, data_.pages.data(), data_.pages.size() * sizeof(uint64_t));
    auto* list_pages = shared_array<uint64_t>(kWaveReads);
    std::memcpy(list_pages, lists_.pages.data(), kWaveReads * sizeof(uint64_t));
    blocks_ = shared_array<BlockRange>(kWaveReads);
    wave_.num_reads = kWaveReads;
    wave_.blocks = blocks_;
    auto* bytes = shared_array<uint32_t>(kWaveReads);
    std::fill_n(bytes, kWaveReads, kBlocksPerRead * kBlockBytes);
    wave_.bytes = bytes;
    wave_.buffer_pages = kBufferPages;
    wave_.pages = pages;
    wave_.lists = reinterpret_cast<uint64_t*>(lists_.data);
    wave_.list_pages = list_pages;
    wave_.statuses = shared_array<uint16_t>(kWaveReads);
    wave_.num_completed = shared_array<uint32_t>(1);
  }

  std::vector<std::byte> image_;
  std::unique_ptr<Controller> controller_;
  std::vector<std::unique_ptr<IoQueue>> queues_;
  DmaMemory data_;
  DmaMemory lists_;
  BlockRange* blocks_ = nullptr;
  DeviceWave wave_{};
};

void read_split(const Setup& setup, int num_blocks) {
  submit_wave(setup.wave(), num_blocks, nullptr);
  const Deadline deadline(kTimeoutSecs);
  while (setup.completed() < kWaveReads) {
    complete_wave(setup.wave(), num_blocks, nullptr);
    check(cudaDeviceSynchronize(), "complete");
    if (deadline.passed()) throw std::runtime_error("split: reads did not complete in time");
  }
}

void read_synchronous(const Setup& setup, int num_blocks) {
  read_wave_synchronously(setup.wave(), 100'000'000, num_blocks, nullptr);
  check(cudaDeviceSynchronize(), "read synchronously");
}

/// Reads per second: the median of five waves, each checked.
template <class Read>
double measure(Setup& setup, int num_blocks, Read&& read) {
  std::vector<double> rates;
  for (uint64_t round = 0; round < 5; ++round) {
    setup.draw(round);
    const auto start = std::chrono::steady_clock::now();
    read(setup, num_blocks);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    setup.verify();
    rates.push_back(kWaveReads / seconds.count());
  }
  std::sort(rates.begin(), rates.end());
  return rates[2];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    const int most = argc > 1 ? std::atoi(argv[1]) : properties.multiProcessorCount;
    Setup setup;
    for (int blocks = 1; blocks <= most; blocks *= 2) {
      const double split = measure(setup, blocks, read_split);
      const double synchronous = measure(setup, blocks, read_synchronous);
      std::printf(
          "{\"thread_blocks\": %d, \"sms\": %d, \"split_reads_per_s\": %.0f, "
          "\"synchronous_reads_per_s\": %.0f}\n",
          blocks, properties.multiProcessorCount, split, synchronous);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
