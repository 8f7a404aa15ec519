// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/nvme_storage.h"

#include <algorithm>
#include <thread>

#include "kernels/core/check.h"
#include "kernels/core/deadline.h"
#include "kernels/core/start_thread.h"
#include "kernels/io/nvme/engine/gpu_queue.h"
#include "kernels/io/nvme/engine/host_queue.h"
#include "kernels/io/nvme/engine/probe.h"
#include "kernels/io/nvme/engine/read_worker.h"
#include "kernels/io/nvme/engine/transports.h"

namespace lsm::nvme {
namespace {

// Interval at which a worker checks for commands that take too long.
constexpr double kExpirySecs = 0.02;

// Longest wait for a test read at opening.
constexpr double kProbeSecs = 1.0;

}  // namespace

/// A thread with a worker for every controller.
class NvmeStorage::WorkerThread {
 public:
  WorkerThread(NvmeStorage& storage, uint16_t queue_id) : storage_(storage) {
    const EngineOptions& options = storage.options_;
    WorkerOptions worker{static_cast<size_t>(options.queue_depth),
                         static_cast<size_t>(storage.max_read_bytes_),
                         storage.nvme_.command_timeout_secs, queue_id};
    worker.gpu = storage.nvme_.gpu;
    for (size_t i = 0; i < storage.controllers_.size(); ++i) {
      worker.make_queue = storage.queue_makers_[i];
      workers_.push_back(std::make_unique<ReadWorker>(*storage.controllers_[i], worker,
                                                      storage.stats_, storage.faults_));
    }
  }
  ~WorkerThread() {
    if (thread_.joinable()) thread_.join();
  }

  void start() {
    thread_ = start_thread([this] { run(); });
  }

 private:
  void run() {
    Backoff backoff;
    Deadline expiry(kExpirySecs);
    while (!storage_.stopping_.load()) {
      const bool idle =
          std::ranges::all_of(workers_, [](const auto& worker) { return worker->idle(); });
      bool busy = start_reads(/*block=*/idle);
      for (const auto& worker : workers_) busy |= worker->take();
      // Submits further reads before it copies the rows of completed ones.
      if (busy) start_reads(/*block=*/false);
      for (const auto& worker : workers_) worker->deliver();
      if (busy) {
        backoff.reset();
      } else {
        backoff.pause();
      }
      if (!expiry.passed()) continue;
      for (const auto& worker : workers_) worker->expire();
      expiry = Deadline(kExpirySecs);
    }
  }

  bool start_reads(bool block) {
    // Any extent may be for any controller's worker, so the fullest one bounds the number.
    size_t room = workers_.front()->room();
    for (const auto& worker : workers_) room = std::min(room, worker->room());
    if (room == 0) return false;
    claims_.clear();
    storage_.queue_.claim(claims_, room, block);
    for (Claim& claim : claims_) {
      const size_t part = claim.extent->file;
      const Target& target = storage_.targets_[part];
      workers_[target.controller]->add({std::move(claim), &target.space, &storage_.paths_[part]});
    }
    for (const auto& worker : workers_) worker->submit();
    return !claims_.empty();
  }

  NvmeStorage& storage_;
  std::vector<std::unique_ptr<ReadWorker>> workers_;
  std::vector<Claim> claims_;
  std::thread thread_;
};

NvmeStorage::NvmeStorage(std::vector<std::string> paths, const RowLayout& layout,
                         const EngineOptions& options, const NvmeOptions& nvme)
    : QueuedStorage("nvme", layout, options), nvme_(nvme), paths_(std::move(paths)) {
  check_argument(options.queue_depth >= 1 && options.queue_depth <= 4096,
                 "queue_depth: expected 1 to 4096, got ", options.queue_depth);
  check_argument(nvme.command_timeout_secs > 0, "command_timeout_secs: expected more than 0, got ",
                 nvme.command_timeout_secs);
  open_namespaces();
  const uint32_t count = num_workers();
  probe();
  for (uint32_t i = 0; i < count; ++i) {
    threads_.push_back(std::make_unique<WorkerThread>(*this, static_cast<uint16_t>(i + 1)));
  }
  try {
    for (const auto& thread : threads_) thread->start();
  } catch (...) {
    stop();
    throw;
  }
}

NvmeStorage::~NvmeStorage() {
  stop();
}

void NvmeStorage::stop() {
  stopping_.store(true);
  queue_.close();
  threads_.clear();
}

WorkerQueueMaker NvmeStorage::queue_maker(Controller& controller) const {
  if (nvme_.submission.device < 0) return HostQueue::make;
  return make_gpu_queues(controller.transport(), nvme_.submission, nvme_.command_timeout_secs);
}

void NvmeStorage::open_namespaces() {
  TransportOptions options = nvme_.transport;
  options.emulated.gpu = nvme_.gpu;
  OpenTransports opened = open_transports(options, paths_, layout_);
  for (auto& transport : opened.transports) {
    controllers_.push_back(
        std::make_unique<Controller>(std::move(transport), nvme_.command_timeout_secs));
    queue_makers_.push_back(queue_maker(*controllers_.back()));
  }
  max_read_bytes_ = options_.max_read_bytes;
  for (size_t part = 0; part < paths_.size(); ++part) {
    const NamespaceAddress& address = opened.namespaces[part];
    Controller& controller = *controllers_[address.transport];
    targets_.push_back({address.transport, controller.identify_namespace(address.namespace_id)});
    check_size(targets_.back(), part);
    block_bytes_ = std::max<int64_t>(block_bytes_, targets_.back().space.block_bytes);
    max_read_bytes_ =
        std::min(max_read_bytes_, static_cast<int64_t>(controller.info().max_transfer_bytes));
  }
  check_max_read();
}

void NvmeStorage::check_size(const Target& target, size_t part) const {
  const int64_t needed = layout_.file_bytes(static_cast<int64_t>(part));
  const NamespaceInfo& space = target.space;
  check_argument(space.bytes() >= static_cast<uint64_t>(needed),
                 controllers_[target.controller]->name(), ": namespace ", space.id, " has ",
                 space.num_blocks, " blocks of ", space.block_bytes, " bytes, too small for the ",
                 needed, " bytes of features on it; use a larger one, or more of them");
}

void NvmeStorage::probe() const {
  // The thread that plays a drive may get no core for a second.
  const double limit = direct() ? kProbeSecs : std::max(kProbeSecs, nvme_.command_timeout_secs);
  for (size_t i = 0; i < controllers_.size(); ++i) {
    const auto on_it = [i](const Target& target) { return target.controller == i; };
    const auto first = std::ranges::find_if(targets_, on_it);
    if (first == targets_.end()) continue;
    const std::string& path = paths_[static_cast<size_t>(first - targets_.begin())];
    probe_drive({*controllers_[i], first->space, path, queue_makers_[i]}, nvme_, limit);
  }
}

uint32_t NvmeStorage::num_workers() {
  const auto wanted = static_cast<uint32_t>(options_.num_threads);
  uint32_t granted = wanted;
  for (const auto& controller : controllers_) {
    granted = std::min(granted, controller->set_num_queues(wanted));
  }
  if (granted < wanted) {
    notes_.push_back(concat("the NVMe controller has only ", granted, " pairs of queues; using ",
                            granted, " of ", wanted, " threads"));
  }
  return granted;
}

}  // namespace lsm::nvme
