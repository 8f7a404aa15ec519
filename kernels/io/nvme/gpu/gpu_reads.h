// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Reads that a GPU submits and completes, in two kernels (Helios, 3.1): no thread waits for a disk,
// and the grid of each kernel is a setting.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/io/nvme/queue/queue_pair.h"

namespace lsm::nvme {

/// The status of a read that has not completed; no controller reports it.
inline constexpr uint16_t kPending = 0xffff;

/// Warps of a thread block of these kernels.
inline constexpr int kWarpsPerBlock = 8;

/// Reads, each into a buffer of its own: read i goes to queue (i / 32) mod num_queues, and its
/// place is its command identifier, so that it may be submitted again only once it has completed.
/// No more of them than the queues have room for in whole groups of 32, or than a single queue has
/// room for. All pointers are reachable from the device; whoever makes the wave owns what they
/// point to.
struct GpuWave {
  const QueuePair* queues;  // [num_queues], in no other use
  uint32_t num_queues;
  uint32_t num_reads;
  const BlockRange* blocks;  // [num_reads]: blocks of each read, at most a buffer
  const uint32_t* bytes;     // [num_reads]: their bytes
  const uint32_t* members;   // [ceil(num_reads / 32)]: which of each 32 to submit; null: all
  uint32_t buffer_pages;     // pages of a buffer, at most 513: lists are not chained
  const uint64_t* pages;     // [num_reads * buffer_pages]: the controller's addresses of buffers
  uint64_t* lists;  // [num_reads * 512]: a page for each PRP list; null if buffer_pages <= 2
  const uint64_t* list_pages;  // [num_reads]: the controller's addresses of those
  uint16_t* statuses;          // [num_reads]: kPending before, an NVMe status after
  uint32_t* num_completed;     // in GPU memory; counts up, modulo 2^32; null: nobody counts
};

/// Submits the reads of the wave: a warp takes a group of 32 and rings at most one doorbell for it.
/// Those for which a queue has no room stay pending. Throws std::runtime_error if the launch fails.
void submit_wave(const GpuWave& wave, int num_blocks, cudaStream_t stream);

/// Takes the completions that are there, a warp per queue, and returns; `statuses` and
/// `num_completed` say how far the wave is. To be launched again until all have come, or for as
/// long as the caller gives them.
void complete_wave(const GpuWave& wave, int num_blocks, cudaStream_t stream);

/// The same reads the synchronous way (BaM), for comparison: a warp submits a group to its queue
/// and waits for it before the next. A group that has not completed after `max_looks` looks at the
/// completion queue is left pending.
void read_wave_synchronously(const GpuWave& wave, uint32_t max_looks, int num_blocks,
                             cudaStream_t stream);

}  // namespace lsm::nvme
