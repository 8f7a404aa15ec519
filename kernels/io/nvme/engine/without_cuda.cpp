// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/gpu_queue.h"

#include "kernels/core/check.h"
#include "kernels/io/nvme/engine/gpu_landing.h"
#include "kernels/io/nvme/engine/gpu_measure.h"

namespace lsm::nvme {

WorkerQueueMaker make_gpu_queues(Transport&, const GpuSubmission&, double) {
  throw_without_cuda("storage.submit_from=gpu");
}

std::unique_ptr<GpuLanding> make_gpu_landing(int, double) {
  throw_without_cuda("storage.read_to=gpu");
}

std::shared_ptr<BlockSource> make_gpu_blocks(std::shared_ptr<BlockSource>, int) {
  throw_without_cuda("storage.read_to=gpu");
}

std::vector<WaveRates> measure_waves(const WaveOptions&) {
  throw_without_cuda("measuring reads by a GPU");
}

}  // namespace lsm::nvme
