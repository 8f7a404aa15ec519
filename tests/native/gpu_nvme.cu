// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The queue code of NVMe, instantiated in device code.
#include "kernels/io/nvme/protocol/command.h"
#include "kernels/io/nvme/protocol/memory_order.h"
#include "kernels/io/nvme/protocol/prp.h"
#include "kernels/io/nvme/protocol/spec.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/contiguous.h"
#include "kernels/io/nvme/queue/queue_pair.h"
#include "kernels/io/nvme/queue/sparse.h"

using namespace lsm::nvme;

__global__ void submit_contiguous(QueuePair queue, BlockRange blocks, DataPointer data) {
  const Batch batch = begin_batch(queue, 1);
  queue.write(batch.first, ReadCommand::make(7, blocks, data));
  end_batch(queue, batch);
}

__global__ void submit_sparse_rows(QueuePair queue, BlockRange blocks, uint64_t* list) {
  const auto page = [](uint32_t i) { return uint64_t{i} * kPageBytes; };
  const DataPointer data = make_data_pointer(0, 1 << 20, page, list, page);
  const Tickets tickets = take_tickets(queue, 1);
  publish(queue, tickets.first, ReadCommand::make(7, blocks, data));
  ring_published(queue);
}

__global__ void complete(QueuePair queue, uint16_t* statuses) {
  take_completions(queue, queue.depth,
                   [&](const Completion& entry) { statuses[entry.command_id()] = entry.status(); });
}

void instantiate_all() {
  submit_contiguous<<<1, 1>>>({}, {}, {});
  submit_sparse_rows<<<1, 1>>>({}, {}, nullptr);
  complete<<<1, 1>>>({}, nullptr);
}
