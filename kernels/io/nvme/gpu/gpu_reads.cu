// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/gpu/gpu_reads.h"

#include "kernels/core/atomics.h"
#include "kernels/core/cuda_check.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/sparse.h"

namespace lsm::nvme {
namespace {

constexpr uint32_t kWarp = 32;
constexpr uint32_t kThreads = kWarpsPerBlock * kWarp;
constexpr uint32_t kAllLanes = 0xffffffff;

static_assert(kGroupSize == kWarp);

/// Index of the read of command `id` of queue `queue`: queues take groups in turn.
__device__ uint32_t read_of(const GpuWave& wave, uint32_t queue, uint32_t id) {
  return (id / kWarp * wave.num_queues + queue) * kWarp + id % kWarp;
}

__device__ ReadCommand make_command(const GpuWave& wave, uint32_t read, uint16_t id) {
  const BlockRange blocks = wave.blocks[read];
  const uint64_t* pages = wave.pages + uint64_t{read} * wave.buffer_pages;
  uint64_t* list = wave.lists == nullptr ? nullptr : wave.lists + uint64_t{read} * kPrpsPerPage;
  const DataPointer data = make_data_pointer(
      0, wave.bytes[read], [&](uint32_t page) { return pages[page]; }, list,
      [&](uint32_t) { return wave.list_pages[read]; });
  return ReadCommand::make(id, blocks, data);
}

__device__ uint32_t first_warp() {
  return (blockIdx.x * blockDim.x + threadIdx.x) / kWarp;
}

__device__ uint32_t num_warps() {
  return gridDim.x * (blockDim.x / kWarp);
}

__device__ uint32_t num_groups(const GpuWave& wave) {
  return (wave.num_reads + kWarp - 1) / kWarp;
}

/// A bit for each read of group `group`: 1 if it is to be submitted.
__device__ uint32_t members_of(const GpuWave& wave, uint32_t group) {
  if (wave.members != nullptr) return wave.members[group];
  const uint32_t size = min(kWarp, wave.num_reads - group * kWarp);
  return kAllLanes >> (kWarp - size);
}

/// Submits group `group` with at most one doorbell. Returns the number of reads for which the queue
/// had room. All lanes of a warp call it.
__device__ uint32_t submit_group(const GpuWave& wave, uint32_t group, uint32_t lane) {
  const uint32_t members = members_of(wave, group);
  if (members == 0) return 0;
  // A copy: pairs may be in page-locked memory, and each acquire would have its fields read again.
  const QueuePair queue = wave.queues[group % wave.num_queues];
  Tickets tickets{};
  if (lane == 0) tickets = take_tickets(queue, __popc(members));
  const uint64_t first = __shfl_sync(kAllLanes, tickets.first, 0);
  const uint32_t count = __shfl_sync(kAllLanes, tickets.count, 0);
  const uint32_t rank = __popc(members & ((1u << lane) - 1));  // among the members
  if ((members >> lane & 1) != 0 && rank < count) {
    const auto id = static_cast<uint16_t>(group / wave.num_queues * kWarp + lane);
    publish(queue, first + rank, make_command(wave, group * kWarp + lane, id));
  }
  __syncwarp();
  if (lane == 0) ring_published(queue);
  return count;
}

__global__ void submit(GpuWave wave) {
  const uint32_t lane = threadIdx.x % kWarp;
  for (uint32_t group = first_warp(); group < num_groups(wave); group += num_warps()) {
    submit_group(wave, group, lane);
  }
}

/// Takes the completions that have arrived in one queue, up to 32 per poll. Returns their number.
/// Lane i polls position consumed + i (Legend, section 5); completions before the first gap are
/// taken.
__device__ uint32_t take(const GpuWave& wave, uint32_t index, uint32_t lane) {
  const QueuePair queue = wave.queues[index];  // a copy, as in submit_group()
  uint32_t taken = 0;
  // Bounded: a queue has no more completions than its capacity.
  while (taken < queue.depth) {
    const uint64_t first = queue.state->consumed;
    Completion entry;
    const bool there = poll_status(queue, first + lane, &entry);
    const uint32_t missing = ~__ballot_sync(kAllLanes, there);
    const uint32_t count = missing == 0 ? kWarp : __ffs(missing) - 1;
    if (lane < count) {
      // A faulty controller may return an identifier that no read has.
      const uint32_t read = read_of(wave, index, entry.command_id());
      if (read < wave.num_reads) wave.statuses[read] = entry.status();
    }
    __syncwarp();  // every lane has read its entry and `consumed`
    if (lane == 0) finish_taking(queue, first + count);
    __syncwarp();
    taken += count;
    if (count < kWarp) break;
  }
  return taken;
}

__device__ void count_completed(const GpuWave& wave, uint32_t taken, uint32_t lane) {
  if (wave.num_completed == nullptr || lane != 0 || taken == 0) return;
  atomic_add(wave.num_completed, taken);
}

__global__ void complete(GpuWave wave) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t taken = 0;
  for (uint32_t queue = first_warp(); queue < wave.num_queues; queue += num_warps()) {
    taken += take(wave, queue, lane);
  }
  count_completed(wave, taken, lane);
}

__global__ void read_synchronously(GpuWave wave, uint32_t max_looks) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t total = 0;
  for (uint32_t queue = first_warp(); queue < wave.num_queues; queue += num_warps()) {
    for (uint32_t group = queue; group < num_groups(wave); group += wave.num_queues) {
      const uint32_t size = submit_group(wave, group, lane);
      uint32_t taken = 0;
      for (uint32_t look = 0; taken < size && look < max_looks; ++look) {
        taken += take(wave, queue, lane);
      }
      total += taken;
    }
  }
  count_completed(wave, total, lane);
}

}  // namespace

void submit_wave(const GpuWave& wave, int num_blocks, cudaStream_t stream) {
  submit<<<num_blocks, kThreads, 0, stream>>>(wave);
  check_cuda(cudaGetLastError(), "submit NVMe reads");
}

void read_wave_synchronously(const GpuWave& wave, uint32_t max_looks, int num_blocks,
                             cudaStream_t stream) {
  read_synchronously<<<num_blocks, kThreads, 0, stream>>>(wave, max_looks);
  check_cuda(cudaGetLastError(), "read through NVMe queues");
}

void complete_wave(const GpuWave& wave, int num_blocks, cudaStream_t stream) {
  complete<<<num_blocks, kThreads, 0, stream>>>(wave);
  check_cuda(cudaGetLastError(), "complete NVMe reads");
}

}  // namespace lsm::nvme
