// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/gpu_queue.h"

#include <algorithm>
#include <bit>

#include "kernels/io/nvme/gpu/gpu_arrays.h"
#include "kernels/io/nvme/gpu/gpu_reads.h"

namespace lsm::nvme {
namespace {

constexpr uint32_t kGroup = 32;

// Helios, 3.1: as much of a GPU as submitting and completing takes when no thread waits.
constexpr double kShareOfGpu = 0.3;

/// The shared state of one controller's queues.
struct Link {
  int device;
  int num_blocks;
  double timeout_secs;
  MappedRange registers;
};

class GpuQueue final : public WorkerQueue {
 public:
  GpuQueue(std::shared_ptr<const Link> link, std::unique_ptr<IoQueue> queue,
           const ReadBuffers& buffers);
  ~GpuQueue() override {
    // Kernels end by themselves; their memory must outlive them. An error was reported before.
    const OwnerEnd end(link_->device);
    cudaStreamSynchronize(stream_.get());
  }

  void submit(std::span<const BufferRead> reads) override;
  void take(std::vector<ReadEnd>& ends) override;

 private:
  QueuePair pair_on_device() const;
  GpuWave make_wave(const ReadBuffers& buffers) const;
  /// No more thread blocks than have a warp's work each.
  int grid(size_t num_warps) const {
    const size_t needed = (num_warps + kWarpsPerBlock - 1) / kWarpsPerBlock;
    return static_cast<int>(std::min<size_t>(link_->num_blocks, needed));
  }

  const std::shared_ptr<const Link> link_;
  // Goes after everything that the kernels use.
  const std::unique_ptr<IoQueue> queue_;
  const size_t num_slots_;
  const size_t num_groups_;
  CudaStream stream_;
  CudaEvent submitted_;
  CudaEvent looked_;
  MappedRange submission_;
  MappedRange completion_;
  std::unique_ptr<MappedRange> lists_;
  GpuArray<QueueState> state_;
  GpuArray<uint32_t> published_;
  GpuArray<uint64_t> pages_;
  GpuArray<uint64_t> list_pages_;
  GpuArray<QueuePair> pair_;
  PinnedArray<BlockRange> blocks_;
  PinnedArray<uint32_t> bytes_;
  PinnedArray<uint32_t> members_;
  PinnedArray<uint16_t> statuses_;
  GpuWave wave_{};
  std::vector<uint32_t> pending_;  // [num_groups], a bit for each read that has not completed
  size_t num_pending_ = 0;
};

GpuQueue::GpuQueue(std::shared_ptr<const Link> link, std::unique_ptr<IoQueue> queue,
                   const ReadBuffers& buffers)
    : link_(std::move(link)),
      queue_(std::move(queue)),
      num_slots_(buffers.count()),
      num_groups_((num_slots_ + kGroup - 1) / kGroup),
      stream_(link_->device),
      submitted_(link_->device),
      looked_(link_->device),
      submission_(queue_->pair().submission, queue_->pair().depth * sizeof(Command), 0,
                  "map a submission queue for the GPU"),
      completion_(queue_->pair().completion, queue_->pair().completion_depth * sizeof(Completion),
                  0, "map a completion queue for the GPU"),
      lists_(buffers.lists().bytes == 0
                 ? nullptr
                 : std::make_unique<MappedRange>(buffers.lists().data, buffers.lists().bytes, 0,
                                                 "map PRP lists for the GPU")),
      state_(1, stream_.get()),
      published_(queue_->pair().depth, stream_.get()),
      pages_(buffers.pages(), stream_.get()),
      list_pages_(buffers.lists().pages, stream_.get()),
      pair_({pair_on_device()}, stream_.get()),
      blocks_(num_slots_),
      bytes_(num_slots_),
      members_(num_groups_),
      statuses_(num_slots_),
      wave_(make_wave(buffers)),
      pending_(num_groups_, 0) {}

QueuePair GpuQueue::pair_on_device() const {
  QueuePair pair = queue_->pair();
  pair.submission = submission_.on_device(pair.submission);
  pair.completion = completion_.on_device(pair.completion);
  pair.tail_doorbell = link_->registers.on_device(pair.tail_doorbell);
  pair.head_doorbell = link_->registers.on_device(pair.head_doorbell);
  // Nobody but the kernels looks at these, so they are where atomic operations are cheap.
  pair.state = state_.get();
  pair.published = published_.get();
  return pair;
}

GpuWave GpuQueue::make_wave(const ReadBuffers& buffers) const {
  GpuWave wave{};
  wave.queues = pair_.get();
  wave.num_queues = 1;
  wave.num_reads = static_cast<uint32_t>(num_slots_);
  wave.blocks = blocks_.get();
  wave.bytes = bytes_.get();
  wave.members = members_.get();
  wave.buffer_pages = static_cast<uint32_t>(buffers.buffer_pages());
  wave.pages = pages_.get();
  if (lists_) wave.lists = lists_->on_device(reinterpret_cast<uint64_t*>(buffers.lists().data));
  wave.list_pages = list_pages_.get();
  wave.statuses = statuses_.get();
  return wave;
}

void GpuQueue::submit(std::span<const BufferRead> reads) {
  use_device(link_->device);
  // The kernel before reads which of the reads it is to submit.
  submitted_.wait(link_->timeout_secs, "submit NVMe reads");
  std::fill_n(members_.get(), num_groups_, 0u);
  for (const BufferRead& read : reads) {
    blocks_[read.id] = read.blocks;
    bytes_[read.id] = read.bytes;
    statuses_[read.id] = kPending;
    members_[read.id / kGroup] |= 1u << read.id % kGroup;
  }
  for (size_t group = 0; group < num_groups_; ++group) pending_[group] |= members_[group];
  num_pending_ += reads.size();
  submit_wave(wave_, grid(num_groups_), stream_.get());
  submitted_.record(stream_.get());
}

void GpuQueue::take(std::vector<ReadEnd>& ends) {
  if (num_pending_ == 0) return;
  use_device(link_->device);
  if (!looked_.done("complete NVMe reads")) return;
  for (size_t group = 0; group < num_groups_; ++group) {
    for (uint32_t rest = pending_[group]; rest != 0; rest &= rest - 1) {
      const auto id = static_cast<uint16_t>(group * kGroup + std::countr_zero(rest));
      const uint16_t status = statuses_[id];
      if (status == kPending) continue;
      pending_[group] &= ~(1u << id % kGroup);
      --num_pending_;
      ends.push_back({id, status});
    }
  }
  if (num_pending_ == 0) return;
  complete_wave(wave_, grid(1), stream_.get());
  looked_.record(stream_.get());
}

int blocks_of(const GpuSubmission& options) {
  if (options.num_blocks > 0) return options.num_blocks;
  int num_sms = 0;
  check_cuda(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, options.device),
             "count the SMs");
  return std::max(1, static_cast<int>(kShareOfGpu * num_sms));
}

}  // namespace

WorkerQueueMaker make_gpu_queues(Transport& transport, const GpuSubmission& options,
                                 double timeout_secs) {
  use_device(options.device);
  const unsigned flags = transport.has_io_registers() ? cudaHostRegisterIoMemory : 0;
  const std::shared_ptr<const Link> link(
      new Link{options.device,
               blocks_of(options),
               timeout_secs,
               {transport.registers(), transport.register_bytes(), flags,
                concat("map the registers of ", transport.name(),
                       " for the GPU (a controller's need root; storage.submit_from=host needs no "
                       "such mapping)")}});
  return [link](std::unique_ptr<IoQueue> queue, const ReadBuffers& buffers) {
    check_argument(buffers.buffer_pages() <= kPrpsPerPage + 1, "max_read_bytes: expected at most ",
                   (kPrpsPerPage + 1) * kPageBytes, " with storage.submit_from=gpu, got ",
                   buffers.buffer_pages() * kPageBytes);
    return std::unique_ptr<WorkerQueue>(
        std::make_unique<GpuQueue>(link, std::move(queue), buffers));
  };
}

}  // namespace lsm::nvme
