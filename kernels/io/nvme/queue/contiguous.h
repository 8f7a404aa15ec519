// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Submission in contiguous batches, by one submitter per queue (a thread, or a thread block): entry
// i of a batch goes to position first + i, known in advance, so that lanes write side by side
// without an atomic operation; then one of them rings the doorbell once (Legend, section 5). We
// differ in that several batches may be in flight, and that completions need not come in the
// batch's order.
#pragma once

#include "kernels/io/nvme/queue/queue_pair.h"

namespace lsm::nvme {

struct Batch {
  uint64_t first;  // position of entry 0
  uint32_t size;   // entries that fit, of those wanted
};

/// Room for up to `wanted` commands. Lanes that call it between two submissions get the same answer
/// if they saw the same completions; on a GPU, lane 0 calls it and broadcasts the result.
LSM_HOST_DEVICE inline Batch begin_batch(const QueuePair& queue, uint32_t wanted) {
  const uint64_t first = queue.state->tickets;
  const uint32_t room = queue.room(first);
  return {first, wanted < room ? wanted : room};
}

/// Rings the doorbell for a batch. Precondition: all its entries are written. On a GPU one lane
/// calls it, after a barrier that orders the other lanes' writes before it.
LSM_HOST_DEVICE inline void end_batch(const QueuePair& queue, const Batch& batch) {
  if (batch.size == 0) return;
  queue.state->tickets = batch.first + batch.size;
  queue.ring_tail(batch.first + batch.size);
}

/// Submits make(0), make(1), ... (ReadCommand or TransferCommand) as one batch. Returns the number
/// that fit.
template <class Make>
uint32_t submit_batch(const QueuePair& queue, uint32_t wanted, Make&& make) {
  const Batch batch = begin_batch(queue, wanted);
  for (uint32_t i = 0; i < batch.size; ++i) queue.write(batch.first + i, make(i));
  end_batch(queue, batch);
  return batch.size;
}

}  // namespace lsm::nvme
