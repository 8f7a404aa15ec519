// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/probe.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/deadline.h"
#include "kernels/core/hash.h"
#include "kernels/io/nvme/engine/gpu_landing.h"
#include "kernels/io/nvme/engine/host_queue.h"
#include "kernels/io/nvme/engine/read_buffers.h"
#include "kernels/io/nvme/protocol/status.h"

namespace lsm::nvme {
namespace {

constexpr uint16_t kQueueId = 1;
// More than a command, so that a kernel has room for a warp's.
constexpr QueueOptions kQueue{.depth = 64, .completion_depth = 64};

constexpr char kHostRemedy[] =
    "; if an IOMMU translates the drive's accesses, boot with iommu=pt, or switch it off in the "
    "firmware";
constexpr char kDoorbellRemedy[] =
    "; PCIe access control (ACS) or an IOMMU may hold back the GPU's writes to the drive: boot "
    "with iommu=pt and switch ACS off on the bridges between them, or let the host submit: "
    "storage.submit_from=host";
constexpr char kLandingRemedy[] =
    "; PCIe access control (ACS) or an IOMMU may hold back the drive's writes to the GPU: boot "
    "with iommu=pt and switch ACS off on the bridges between them, or read to host memory: "
    "storage.read_to=host";

using Page = std::array<std::byte, kPageBytes>;

/// Bytes that are on no drive but by chance of 1 in 2^64.
Page random_marks() {
  std::random_device device;
  const uint64_t seed = uint64_t{device()} << 32 | device();
  Page marks;
  for (size_t i = 0; i < marks.size(); i += sizeof(uint64_t)) {
    const uint64_t word = mix64(seed + i);
    std::memcpy(&marks[i], &word, sizeof word);
  }
  return marks;
}

/// One read, and the memory that it lands in.
class Probe {
 public:
  Probe(const ProbedDrive& drive, std::unique_ptr<GpuLanding> landing, const std::string& way)
      : drive_(drive),
        what_(concat(drive.controller.name(), ": a test read of the first block of namespace ",
                     drive.space.id, ", ", way, ",")),
        landing_(std::move(landing)),
        buffers_(drive.controller.transport(), 1, kPageBytes, landing_.get()) {}

  void run(const WorkerQueueMaker& make_queue, double limit_secs, const char* remedy) {
    const Page marks = random_marks();
    const std::span<const std::byte> expected(marks.data(), drive_.space.block_bytes);
    put(expected);
    // After its end the drive no longer writes to the buffer.
    const auto queue = make_queue(drive_.controller.create_queue(kQueueId, kQueue), buffers_);
    const BufferRead read{0, {drive_.space.id, 1, 0}, drive_.space.block_bytes};
    queue->submit({&read, 1});
    const uint16_t status = await(*queue, limit_secs, remedy);
    if (status != kSuccess) {
      throw SystemError(EIO, drive_.path, concat(what_, " failed: ", describe_status(status)));
    }
    Page found;
    get(std::span(found).first(expected.size()));
    if (std::memcmp(found.data(), expected.data(), expected.size()) == 0) {
      throw std::runtime_error(concat(what_, " ended with success, but brought no data", remedy));
    }
  }

 private:
  void put(std::span<const std::byte> bytes) {
    if (landing_) {
      landing_->put(bytes, buffers_.data(0));
    } else {
      std::memcpy(buffers_.data(0), bytes.data(), bytes.size());
    }
  }

  void get(std::span<std::byte> bytes) {
    if (landing_) {
      landing_->get(buffers_.data(0), bytes);
    } else {
      std::memcpy(bytes.data(), buffers_.data(0), bytes.size());
    }
  }

  uint16_t await(WorkerQueue& queue, double limit_secs, const char* remedy) const {
    std::vector<ReadEnd> ends;
    Backoff backoff;
    for (const Deadline deadline(limit_secs);;) {
      const bool late = deadline.passed();
      queue.take(ends);
      for (const ReadEnd& end : ends) {
        if (end.id == 0) return end.status;
      }
      if (late) {
        throw TimeoutError(concat(what_, " did not complete within ", limit_secs, " s", remedy));
      }
      backoff.pause();
    }
  }

  const ProbedDrive& drive_;
  const std::string what_;
  const std::unique_ptr<GpuLanding> landing_;
  const ReadBuffers buffers_;
};

}  // namespace

void probe_drive(const ProbedDrive& drive, const NvmeOptions& options, double limit_secs) {
  if (drive.space.num_blocks == 0) return;
  const bool gpu_submits = options.submission.device >= 0;
  Probe(drive, nullptr, "submitted by the host into host memory")
      .run(HostQueue::make, limit_secs, kHostRemedy);
  if (gpu_submits) {
    Probe(drive, nullptr,
          concat("submitted by GPU ", options.submission.device, " into host memory"))
        .run(drive.make_queue, limit_secs, kDoorbellRemedy);
  }
  if (options.gpu >= 0) {
    Probe(drive, make_gpu_landing(options.gpu, limit_secs),
          concat("submitted by ", gpu_submits ? "a GPU" : "the host", " into memory of GPU ",
                 options.gpu))
        .run(drive.make_queue, limit_secs, kLandingRemedy);
  }
}

}  // namespace lsm::nvme
