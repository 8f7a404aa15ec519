// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/gpu_measure.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "kernels/core/deadline.h"
#include "kernels/core/hash.h"
#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "kernels/io/nvme/gpu/gpu_arrays.h"
#include "kernels/io/nvme/gpu/gpu_reads.h"
#include "kernels/io/nvme/protocol/status.h"

namespace lsm::nvme {
namespace {

constexpr uint32_t kBlockBytes = 4096;
constexpr uint64_t kImageBytes = 64 << 20;
constexpr double kTimeoutSecs = 20;
// Polls of a queue before a warp gives up. Each crosses the bus, so this many take seconds.
constexpr uint32_t kMaxLooks = 2'000'000;

/// Copies blocks to the target of a transfer, host or GPU memory, in place of the controller's DMA
/// engine. It has a stream of its own, so that no kernel that waits for a read delays it.
class CopiedBlocks final : public BlockSource {
 public:
  CopiedBlocks(int device, std::span<const std::byte> memory)
      : device_(device), memory_(memory), stream_(device) {}

  uint64_t bytes() const override { return memory_.size(); }
  bool read(uint64_t offset, std::span<const Segment> segments) override {
    if (cudaSetDevice(device_) != cudaSuccess) return false;
    for (const Segment& segment : segments) {
      if (cudaMemcpyAsync(segment.data, memory_.data() + offset, segment.bytes, cudaMemcpyDefault,
                          stream_.get()) != cudaSuccess) {
        return false;
      }
      offset += segment.bytes;
    }
    return cudaStreamSynchronize(stream_.get()) == cudaSuccess;
  }

 private:
  const int device_;
  const std::span<const std::byte> memory_;
  CudaStream stream_;
};

class WaveRun {
 public:
  explicit WaveRun(const WaveOptions& options)
      : options_((use_device(options.device), options)),
        stream_(options.device),
        image_(kImageBytes),
        states_(options.num_queues, stream_.get()),
        published_(size_t{options.num_queues} * options.depth, stream_.get()),
        blocks_(options.num_reads),
        bytes_(options.num_reads),
        statuses_(options.num_reads),
        num_completed_(1, stream_.get()),
        completed_(1) {
    for (uint64_t i = 0; i < kImageBytes / sizeof(uint64_t); ++i) {
      reinterpret_cast<uint64_t*>(image_.get())[i] = mix64(i);
    }
    open_controller();
    make_queues();
    make_buffers();
    make_wave();
    check_cuda(cudaStreamSynchronize(stream_.get()), "set up NVMe queues on the GPU");
  }

  /// Reads per second, the median of the rounds.
  template <class Read>
  double measure(Read&& read) {
    std::vector<double> rates;
    for (uint32_t round = 0; round <= options_.rounds; ++round) {
      draw(round);
      const auto start = std::chrono::steady_clock::now();
      read();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      verify();
      if (round > 0) rates.push_back(options_.num_reads / seconds.count());
    }
    std::nth_element(rates.begin(), rates.begin() + rates.size() / 2, rates.end());
    return rates[rates.size() / 2];
  }

  void read_split(int num_blocks) const {
    const Deadline deadline(kTimeoutSecs);
    submit_wave(wave_, num_blocks, stream_.get());
    do {
      complete_wave(wave_, num_blocks, stream_.get());
      check_cuda(cudaMemcpyAsync(completed_.get(), num_completed_.get(), sizeof(uint32_t),
                                 cudaMemcpyDeviceToHost, stream_.get()),
                 "fetch how many NVMe reads have completed");
      check_cuda(cudaStreamSynchronize(stream_.get()), "complete a wave of NVMe reads");
      if (deadline.passed()) {
        throw TimeoutError(concat("a wave of NVMe reads: ", completed_[0], " of ",
                                  options_.num_reads, " completed within ", kTimeoutSecs, " s"));
      }
    } while (completed_[0] < options_.num_reads);
  }

  void read_synchronously(int num_blocks) const {
    read_wave_synchronously(wave_, kMaxLooks, num_blocks, stream_.get());
    check_cuda(cudaStreamSynchronize(stream_.get()), "read a wave synchronously");
  }

 private:
  void open_controller();
  void make_queues();
  void make_buffers();
  void make_wave();
  void draw(uint64_t seed);
  void verify();
  void expose(void* memory, size_t bytes, const char* what) {
    exposed_.push_back(std::make_unique<MappedRange>(memory, bytes, 0, what));
  }
  size_t data_bytes() const { return size_t{options_.num_reads} * options_.read_bytes; }

  const WaveOptions options_;
  CudaStream stream_;
  PinnedArray<std::byte> image_;
  GpuArray<QueueState> states_;
  GpuArray<uint32_t> published_;
  PinnedArray<BlockRange> blocks_;
  PinnedArray<uint32_t> bytes_;
  PinnedArray<uint16_t> statuses_;
  GpuArray<uint32_t> num_completed_;
  PinnedArray<uint32_t> completed_;
  std::unique_ptr<GpuArray<QueuePair>> pairs_;
  std::unique_ptr<MappableMemory> device_data_;
  std::unique_ptr<GpuArray<uint64_t>> pages_;
  std::unique_ptr<GpuArray<uint64_t>> list_pages_;
  std::unique_ptr<Controller> controller_;
  EmulatedTransport* transport_ = nullptr;  // the controller's
  DmaMemory data_;
  DmaMemory lists_;
  std::vector<std::unique_ptr<IoQueue>> queues_;
  std::vector<std::unique_ptr<MappedRange>> exposed_;
  GpuWave wave_{};
  std::vector<std::byte> received_;
};

void WaveRun::open_controller() {
  ControllerOptions controller;
  controller.num_queues = options_.num_queues;
  const std::span<const std::byte> image(image_.get(), kImageBytes);
  std::shared_ptr<BlockSource> source;
  if (options_.into_device_memory) {
    source = std::make_shared<CopiedBlocks>(options_.device, image);
  } else {
    source = std::make_shared<MemoryBlocks>(image);
  }
  auto transport = std::make_unique<EmulatedTransport>(
      "emulated controller", controller, std::vector<EmulatedNamespace>{{source, kBlockBytes}});
  transport_ = transport.get();
  controller_ = std::make_unique<Controller>(std::move(transport));
  const uint32_t granted = controller_->set_num_queues(options_.num_queues);
  check_argument(granted == options_.num_queues, "num_queues: the controller has ", granted);
  expose(transport_->registers(), transport_->register_bytes(), "map doorbells for the GPU");
}

/// Queues and doorbells lie in host memory, the submitters' shared state in the GPU's.
void WaveRun::make_queues() {
  std::vector<QueuePair> pairs;
  for (uint32_t i = 0; i < options_.num_queues; ++i) {
    const QueueOptions depths{options_.depth, 4 * options_.depth};
    queues_.push_back(controller_->create_queue(static_cast<uint16_t>(i + 1), depths));
    QueuePair pair = queues_.back()->pair();
    const MappedRange& registers = *exposed_.front();
    expose(pair.submission, pair.depth * sizeof(Command), "map a submission queue for the GPU");
    pair.submission = exposed_.back()->on_device(pair.submission);
    expose(pair.completion, pair.completion_depth * sizeof(Completion),
           "map a completion queue for the GPU");
    pair.completion = exposed_.back()->on_device(pair.completion);
    pair.tail_doorbell = registers.on_device(pair.tail_doorbell);
    pair.head_doorbell = registers.on_device(pair.head_doorbell);
    pair.state = states_.get() + i;
    pair.published = published_.get() + size_t{i} * options_.depth;
    pairs.push_back(pair);
  }
  pairs_ = std::make_unique<GpuArray<QueuePair>>(pairs, stream_.get());
}

void WaveRun::make_buffers() {
  if (options_.into_device_memory) {
    device_data_ = std::make_unique<MappableMemory>(data_bytes());
    data_ = transport_->map(device_data_->get(), data_bytes());
    received_.resize(data_bytes());
  } else {
    data_ = transport_->allocate(data_bytes(), DmaShape::kPages);
  }
  pages_ = std::make_unique<GpuArray<uint64_t>>(data_.pages, stream_.get());
  if (options_.read_bytes <= 2 * kPageBytes) return;
  lists_ = transport_->allocate(size_t{options_.num_reads} * kPageBytes, DmaShape::kPages);
  expose(lists_.data, lists_.bytes, "map PRP lists for the GPU");
  wave_.lists = exposed_.back()->on_device(reinterpret_cast<uint64_t*>(lists_.data));
  list_pages_ = std::make_unique<GpuArray<uint64_t>>(lists_.pages, stream_.get());
  wave_.list_pages = list_pages_->get();
}

void WaveRun::make_wave() {
  std::fill_n(bytes_.get(), options_.num_reads, options_.read_bytes);
  wave_.queues = pairs_->get();
  wave_.num_queues = options_.num_queues;
  wave_.num_reads = options_.num_reads;
  wave_.blocks = blocks_.get();
  wave_.bytes = bytes_.get();
  wave_.buffer_pages = options_.read_bytes / kPageBytes;
  wave_.pages = pages_->get();
  wave_.statuses = statuses_.get();
  wave_.num_completed = num_completed_.get();
}

/// Draws new random reads and clears the buffers.
void WaveRun::draw(uint64_t seed) {
  const uint32_t num_blocks = options_.read_bytes / kBlockBytes;
  const uint64_t num_places = kImageBytes / kBlockBytes - num_blocks + 1;
  for (uint32_t i = 0; i < options_.num_reads; ++i) {
    blocks_[i] = {1, num_blocks, mix64(seed * options_.num_reads + i) % num_places};
    statuses_[i] = kPending;
  }
  check_cuda(cudaMemsetAsync(num_completed_.get(), 0, sizeof(uint32_t), stream_.get()),
             "begin to count NVMe reads");
  if (!options_.into_device_memory) {
    std::memset(data_.data, 0, data_.bytes);
    return;
  }
  check_cuda(cudaMemsetAsync(data_.data, 0, data_.bytes, stream_.get()), "clear buffers");
  check_cuda(cudaStreamSynchronize(stream_.get()), "clear buffers");
}

void WaveRun::verify() {
  const std::byte* data = data_.data;
  if (options_.into_device_memory) {
    check_cuda(cudaMemcpyAsync(received_.data(), data_.data, data_.bytes, cudaMemcpyDeviceToHost,
                               stream_.get()),
               "fetch the bytes read");
    check_cuda(cudaStreamSynchronize(stream_.get()), "fetch the bytes read");
    data = received_.data();
  }
  for (uint32_t i = 0; i < options_.num_reads; ++i) {
    if (statuses_[i] == kPending) {
      throw TimeoutError(concat("read ", i, " of a wave did not complete"));
    }
    if (statuses_[i] != kSuccess) {
      throw std::runtime_error(concat("read ", i, " of a wave: ", describe_status(statuses_[i])));
    }
    const std::byte* expected = image_.get() + blocks_[i].lba * kBlockBytes;
    if (std::memcmp(data + size_t{i} * options_.read_bytes, expected, options_.read_bytes) != 0) {
      throw std::runtime_error(concat("read ", i, " of a wave has wrong bytes"));
    }
  }
}

/// The number of reads that the queues hold, in whole groups of a warp.
uint32_t most_reads(const WaveOptions& options) {
  return options.num_queues * ((options.depth - 1) / 32) * 32;
}

void check(const WaveOptions& options) {
  check_argument(options.read_bytes >= kPageBytes && options.read_bytes % kPageBytes == 0 &&
                     options.read_bytes <= 256 * kPageBytes,
                 "read_bytes: expected a multiple of ", kPageBytes, " up to ", 256 * kPageBytes,
                 ", got ", options.read_bytes);
  check_argument(
      options.num_queues >= 1 && options.num_reads >= 1 && options.num_reads <= most_reads(options),
      "num_reads: expected 1 to ", most_reads(options), ", which the queues have room for, got ",
      options.num_reads);
  check_argument(options.rounds >= 1, "rounds: expected at least 1, got ", options.rounds);
  for (const int num_blocks : options.num_blocks) {
    check_argument(num_blocks >= 1, "num_blocks: expected at least 1, got ", num_blocks);
  }
}

}  // namespace

std::vector<WaveRates> measure_waves(const WaveOptions& options) {
  check(options);
  WaveRun run(options);
  std::vector<WaveRates> rates;
  for (const int num_blocks : options.num_blocks) {
    const double split = run.measure([&] { run.read_split(num_blocks); });
    const double synchronous = run.measure([&] { run.read_synchronously(num_blocks); });
    rates.push_back({num_blocks, split, synchronous});
  }
  return rates;
}

}  // namespace lsm::nvme
