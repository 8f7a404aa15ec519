// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/measure.h"

#include <chrono>
#include <cstring>
#include <ctime>
#include <optional>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/core/check.h"
#include "kernels/core/deadline.h"
#include "kernels/core/hash.h"
#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "kernels/io/nvme/engine/read_buffers.h"
#include "kernels/io/nvme/protocol/status.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/contiguous.h"
#include "kernels/io/nvme/queue/sparse.h"

namespace lsm::nvme {
namespace {

constexpr double kStallSecs = 10;

double cpu_secs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The source of blocks: a file, or memory in which each read's first bytes are its number.
class Source {
 public:
  explicit Source(const MeasureOptions& options) {
    if (!options.file.empty()) {
      blocks_ = std::make_shared<FileBlocks>(options.file);
      return;
    }
    memory_.emplace(options.memory_bytes);
    const uint64_t count = options.memory_bytes / options.read_bytes;
    for (uint64_t i = 0; i < count; ++i) {
      std::memset(memory_->data() + i * options.read_bytes, static_cast<int>(i),
                  options.read_bytes);
      std::memcpy(memory_->data() + i * options.read_bytes, &i, sizeof(i));
    }
    const auto bytes = static_cast<size_t>(count * options.read_bytes);
    blocks_ = std::make_shared<MemoryBlocks>(std::span<const std::byte>(memory_->data(), bytes));
  }

  const std::shared_ptr<BlockSource>& blocks() const { return blocks_; }
  bool is_known() const { return memory_.has_value(); }

 private:
  std::optional<HostBlock> memory_;
  std::shared_ptr<BlockSource> blocks_;
};

/// One queue, kept full.
class Run {
 public:
  Run(const MeasureOptions& options, const Source& source, Controller& controller)
      : options_(options),
        check_(source.is_known()),
        space_(controller.identify_namespace(1)),
        num_places_(source.blocks()->bytes() / options.read_bytes),
        queue_(controller.create_queue(1, {options.depth, options.completion_depth})),
        buffers_(controller.transport(), queue_->pair().capacity(), options.read_bytes),
        places_(queue_->pair().capacity()) {
    for (size_t i = places_.size(); i > 0; --i) free_.push_back(static_cast<uint16_t>(i - 1));
  }

  void run() {
    const QueuePair& pair = queue_->pair();
    Deadline deadline(kStallSecs);
    Backoff backoff;
    uint64_t submitted = 0;
    for (uint64_t completed = 0; completed < options_.reads;) {
      if (free_.size() >= options_.batch && submitted < options_.reads) submitted += submit(pair);
      const uint32_t count =
          take_completions(pair, options_.batch, [&](const Completion& entry) { finish(entry); });
      completed += count;
      if (count > 0) {
        backoff.reset();
        deadline = Deadline(kStallSecs);
      } else {
        if (deadline.passed()) throw TimeoutError("measure_reads: completions stopped coming");
        backoff.pause();
      }
    }
  }

  const QueueState& state() const { return queue_->state(); }

 private:
  uint32_t submit(const QueuePair& pair) {
    const size_t end = free_.size();
    const auto make = [&](uint32_t i) {
      const uint16_t id = free_[end - 1 - i];
      places_[id] = mix64(++counter_) % num_places_;
      const uint32_t num_blocks = options_.read_bytes / space_.block_bytes;
      return ReadCommand::make(id, {space_.id, num_blocks, places_[id] * num_blocks},
                               buffers_.pointer(id, options_.read_bytes));
    };
    const uint32_t count = options_.sparse ? submit_sparse(pair, options_.batch, make)
                                           : submit_batch(pair, options_.batch, make);
    free_.resize(end - count);
    return count;
  }

  void finish(const Completion& entry) {
    const uint16_t id = entry.command_id();
    if (entry.status() != kSuccess) {
      throw std::runtime_error("measure_reads: " + describe_status(entry.status()));
    }
    if (check_) {
      uint64_t first = 0;
      std::memcpy(&first, buffers_.data(id), sizeof(first));
      if (first != places_[id]) throw std::runtime_error("measure_reads: a read has wrong bytes");
    }
    free_.push_back(id);
  }

  const MeasureOptions& options_;
  const bool check_;
  const NamespaceInfo space_;
  const uint64_t num_places_;
  std::unique_ptr<IoQueue> queue_;
  ReadBuffers buffers_;
  std::vector<uint64_t> places_;
  std::vector<uint16_t> free_;
  uint64_t counter_ = 0;
};

}  // namespace

Measured measure_reads(const MeasureOptions& options) {
  check_argument(options.read_bytes >= 4096 && options.read_bytes % 4096 == 0,
                 "read_bytes: expected a multiple of 4096, got ", options.read_bytes);
  check_argument(options.batch >= 1 && options.batch < options.depth, "batch: expected 1 to ",
                 options.depth - 1, ", less than the depth, got ", options.batch);
  const Source source(options);
  check_argument(source.blocks()->bytes() >= options.read_bytes, "expected at least ",
                 options.read_bytes, " bytes to read, got ", source.blocks()->bytes());
  Controller controller(
      std::make_unique<EmulatedTransport>("emulated controller", ControllerOptions{},
                                          std::vector<EmulatedNamespace>{{source.blocks(), 4096}}));
  Run run(options, source, controller);
  const double process_before = cpu_secs(CLOCK_PROCESS_CPUTIME_ID);
  const double thread_before = cpu_secs(CLOCK_THREAD_CPUTIME_ID);
  const auto start = std::chrono::steady_clock::now();
  run.run();
  Measured result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.submitter_cpu_secs = cpu_secs(CLOCK_THREAD_CPUTIME_ID) - thread_before;
  result.process_cpu_secs = cpu_secs(CLOCK_PROCESS_CPUTIME_ID) - process_before;
  result.tail_writes = run.state().tail_writes;
  result.head_writes = run.state().head_writes;
  return result;
}

}  // namespace lsm::nvme
