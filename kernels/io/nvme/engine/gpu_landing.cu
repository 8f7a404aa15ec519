// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/gpu_landing.h"

#include <mutex>
#include <utility>

#include "kernels/core/cuda_launch.h"
#include "kernels/gather/copy_rows_functors.h"
#include "kernels/io/nvme/gpu/gpu_arrays.h"
#include "kernels/io/nvme/transport/libnvm_module.h"

namespace lsm::nvme {
namespace {

struct GpuPiece {
  const std::byte* from;
  std::byte* to;
  int64_t bytes;
};

/// A warp per piece, by the widest word that its addresses and length allow.
struct CopyPieces {
  const GpuPiece* pieces;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const GpuPiece piece = pieces[i];
    const uintptr_t alignment = reinterpret_cast<uintptr_t>(piece.from) |
                                reinterpret_cast<uintptr_t>(piece.to) |
                                static_cast<uintptr_t>(piece.bytes);
    if (alignment % sizeof(Word16) == 0) {
      copy_row<Word16>(lanes, piece.from, piece.to, piece.bytes);
    } else if (alignment % sizeof(uint32_t) == 0) {
      copy_row<uint32_t>(lanes, piece.from, piece.to, piece.bytes);
    } else {
      copy_row<uint8_t>(lanes, piece.from, piece.to, piece.bytes);
    }
  }
};

/// Memory of the GPU and a controller's mapping of it, which ends first.
struct MappedMemory {
  MappedMemory(Transport& transport, size_t bytes) : memory(bytes + kGpuPageBytes) {
    std::byte* const first = memory.get();
    const size_t skipped = -reinterpret_cast<uintptr_t>(first) % kGpuPageBytes;
    mapped = transport.map_gpu_memory(first + skipped, bytes);
  }

  MappableMemory memory;
  DmaMemory mapped;
};

class Landing final : public GpuLanding {
 public:
  Landing(int device, double timeout_secs)
      : device_((use_device(device), device)),
        timeout_secs_(timeout_secs),
        stream_(device),
        copied_(device) {
    int ordering = 0;
    check_cuda(cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device),
               "ask for the order of other devices' writes");
    must_flush_ = ordering == cudaGPUDirectRDMAWritesOrderingNone;
  }

  DmaMemory allocate(Transport& transport, size_t bytes) override {
    use_device(device_);
    const size_t whole = (bytes + kGpuPageBytes - 1) / kGpuPageBytes * kGpuPageBytes;
    const auto owner = std::make_shared<MappedMemory>(transport, whole);
    check_cuda(cudaMemsetAsync(owner->mapped.data, 0, owner->mapped.bytes, stream_.get()),
               "clear buffers");
    copied_.record(stream_.get());
    copied_.wait(timeout_secs_, "clear buffers");
    return {owner->mapped.data, owner->mapped.bytes, owner->mapped.pages, owner};
  }

  void copy(std::span<const PieceCopy> pieces) override {
    if (pieces.empty()) return;
    use_device(device_);
    flush();
    if (pieces.size() > num_listed_) {
      num_listed_ = 2 * pieces.size();
      listed_ = std::make_unique<PinnedArray<GpuPiece>>(num_listed_);
    }
    size_t count = 0;
    for (const PieceCopy& piece : pieces) {
      if (piece.request->on_gpu()) {
        (*listed_)[count++] = {piece.from, piece.to, piece.bytes};
        continue;
      }
      check_cuda(
          cudaMemcpyAsync(piece.to, piece.from, piece.bytes, cudaMemcpyDeviceToHost, stream_.get()),
          "copy a row to the host");
    }
    CudaLauncher(stream_.get())
        .for_each_warp(static_cast<int64_t>(count), CopyPieces{listed_->get()});
    copied_.record(stream_.get());
    copied_.wait(timeout_secs_, "copy rows from where a drive wrote them");
  }

  void put(std::span<const std::byte> from, std::byte* to) override {
    use_device(device_);
    check_cuda(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_.get()),
               "fill a buffer");
    copied_.record(stream_.get());
    copied_.wait(timeout_secs_, "fill a buffer");
  }

  void get(const std::byte* from, std::span<std::byte> to) override {
    use_device(device_);
    flush();
    check_cuda(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_.get()),
               "fetch a buffer");
    copied_.record(stream_.get());
    copied_.wait(timeout_secs_, "fetch a buffer");
  }

 private:
  /// A completion in host memory may overtake the drive's writes to the GPU on the bus.
  void flush() const {
    if (!must_flush_) return;
    const RelaxedCapture relaxed;
    check_cuda(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                                  cudaFlushGPUDirectRDMAWritesToOwner),
               "wait for a drive's writes to the GPU");
  }

  const int device_;
  const double timeout_secs_;
  CudaStream stream_;
  CudaEvent copied_;
  bool must_flush_ = false;
  size_t num_listed_ = 0;
  std::unique_ptr<PinnedArray<GpuPiece>> listed_;
};

class GpuBlocks final : public BlockSource {
 public:
  GpuBlocks(std::shared_ptr<BlockSource> source, int device)
      : source_(std::move(source)), device_((use_device(device), device)), stream_(device) {}

  uint64_t bytes() const override { return source_->bytes(); }
  bool read(uint64_t offset, std::span<const Segment> segments) override {
    size_t bytes = 0;
    for (const Segment& segment : segments) bytes += segment.bytes;
    const std::lock_guard lock(mutex_);
    try {
      use_device(device_);
      if (!bounce_ || bounce_->size() < bytes) bounce_ = std::make_unique<PinnedBlock>(bytes);
      const Segment all{bounce_->data(), bytes};
      if (!source_->read(offset, {&all, 1})) return false;
      const std::byte* from = bounce_->data();
      for (const Segment& segment : segments) {
        check_cuda(
            cudaMemcpyAsync(segment.data, from, segment.bytes, cudaMemcpyDefault, stream_.get()),
            "write as a drive");
        from += segment.bytes;
      }
      const RelaxedCapture relaxed;
      check_cuda(cudaStreamSynchronize(stream_.get()), "write as a drive");
      return true;
    } catch (const CudaError&) {
      return false;
    }
  }

 private:
  const std::shared_ptr<BlockSource> source_;
  const int device_;
  CudaStream stream_;
  std::mutex mutex_;
  std::unique_ptr<PinnedBlock> bounce_;
};

}  // namespace

std::unique_ptr<GpuLanding> make_gpu_landing(int device, double timeout_secs) {
  return std::make_unique<Landing>(device, timeout_secs);
}

std::shared_ptr<BlockSource> make_gpu_blocks(std::shared_ptr<BlockSource> source, int device) {
  return std::make_shared<GpuBlocks>(std::move(source), device);
}

}  // namespace lsm::nvme
