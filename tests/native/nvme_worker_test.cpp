// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// A worker whose queue fails, as one that a GPU works may.
#include <doctest/doctest.h>

#include "kernels/core/deadline.h"
#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "kernels/io/nvme/engine/read_worker.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

using namespace lsm::nvme;

constexpr int64_t kPage = 4096;
constexpr int64_t kRows = 64;

/// How many calls go well before one fails.
struct Luck {
  int submits = 1 << 30;
  int takes = 1 << 30;
};

class FailingQueue final : public WorkerQueue {
 public:
  FailingQueue(std::unique_ptr<WorkerQueue> queue, Luck& luck)
      : queue_(std::move(queue)), luck_(luck) {}

  void submit(std::span<const BufferRead> reads) override {
    if (luck_.submits-- == 0) throw std::runtime_error("the GPU is gone");
    queue_->submit(reads);
  }
  void take(std::vector<ReadEnd>& ends) override {
    if (luck_.takes-- == 0) throw std::runtime_error("the GPU is gone");
    queue_->take(ends);
  }

 private:
  const std::unique_ptr<WorkerQueue> queue_;
  Luck& luck_;
};

class LaneMachine {
 public:
  LaneMachine() : blocks_(kRows * kPage) {
    for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = static_cast<std::byte>(i / kPage);
    const std::vector<EmulatedNamespace> namespaces = {
        {std::make_shared<MemoryBlocks>(blocks_), 512}};
    controller_ = std::make_unique<Controller>(
        std::make_unique<EmulatedTransport>("emulated", ControllerOptions{}, namespaces));
    space_ = controller_->identify_namespace(1);
    controller_->set_num_queues(1);
    WorkerOptions options{.depth = 4, .command_timeout_secs = kTimeoutSecs};
    options.make_queue = [this](std::unique_ptr<IoQueue> queue, const ReadBuffers& buffers) {
      return std::make_unique<FailingQueue>(HostQueue::make(std::move(queue), buffers), luck);
    };
    worker = std::make_unique<ReadWorker>(*controller_, options, stats, faults_);
  }

  std::shared_ptr<Request> add(const int64_t& row, std::span<std::byte> output) {
    const std::vector<RowRead> reads = {{{&row, 1}, {}, output}};
    const RowLayout layout{kRows, kPage, kPage, 1};
    auto request = std::make_shared<Request>(output.data(), "a row");
    auto group = std::make_shared<ReadGroup>(plan_reads(reads, layout, {512, 8 * kPage, 0}),
                                             std::vector{request}, stats.outstanding);
    const Extent* extent = group->take_extent();
    worker->add({{std::move(group), extent}, &space_, &path_});
    return request;
  }

  Luck luck;
  ReadStats stats;

 private:
  FaultInjector faults_;
  std::vector<std::byte> blocks_;
  std::unique_ptr<Controller> controller_;
  NamespaceInfo space_;
  const std::string path_ = "a file";

 public:
  std::unique_ptr<ReadWorker> worker;  // goes first
};

void await_completion(LaneMachine& machine) {
  const Deadline deadline(kTimeoutSecs);
  while (!machine.worker->take()) LSM_EXPECT(!deadline.passed(), "no completion came");
}

/// Reads row `row` well.
void read_row(LaneMachine& machine, int64_t row) {
  std::vector<std::byte> output(kPage);
  const auto request = machine.add(row, output);
  machine.worker->submit();
  await_completion(machine);
  machine.worker->deliver();
  request->wait(kTimeoutSecs);
  LSM_EXPECT(output == std::vector<std::byte>(kPage, static_cast<std::byte>(row)), "row ", row);
}

/// After a failure: whatever is added fails at once, nothing is left in flight, nothing hangs.
void check_broken(LaneMachine& machine) {
  std::vector<std::byte> output(kPage);
  LSM_EXPECT(machine.worker->room() > 0 && machine.worker->idle(), "after the failure");
  const auto request = machine.add(3, output);
  machine.worker->submit();
  expect_throw<std::runtime_error>("the GPU is gone", [&] { request->wait(kTimeoutSecs); });
  LSM_EXPECT(!machine.worker->take(), "the failed queue was asked");
  machine.worker->expire();
  LSM_EXPECT(machine.worker->idle() && machine.stats.outstanding.load() == 0, "reads are left");
}

TEST_CASE("nvme worker: submission fails") {
  LaneMachine machine;
  read_row(machine, 7);
  machine.luck.submits = 0;
  std::vector<std::byte> output(kPage);
  const auto request = machine.add(5, output);
  machine.worker->submit();
  expect_throw<std::runtime_error>("NVMe read of 8 blocks at LBA 40 of namespace 1",
                                   [&] { request->wait(kTimeoutSecs); });
  check_broken(machine);
}

TEST_CASE("nvme worker: completion fails") {
  LaneMachine machine;
  read_row(machine, 7);
  machine.luck.takes = 0;
  std::vector<std::byte> output(2 * kPage);
  const auto first = machine.add(5, std::span(output).first(kPage));
  const auto second = machine.add(6, std::span(output).last(kPage));
  machine.worker->submit();
  LSM_EXPECT(machine.worker->take(), "the failure is news");
  expect_throw<std::runtime_error>("LBA 40 of namespace 1", [&] { first->wait(kTimeoutSecs); });
  expect_throw<std::runtime_error>("LBA 48 of namespace 1", [&] { second->wait(kTimeoutSecs); });
  check_broken(machine);
}

/// Completions that were taken before the failure are delivered.
TEST_CASE("nvme worker: failure after a completion") {
  LaneMachine machine;
  machine.luck.submits = 1;
  std::vector<std::byte> output(2 * kPage);
  const auto first = machine.add(5, std::span(output).first(kPage));
  machine.worker->submit();
  await_completion(machine);
  const auto second = machine.add(6, std::span(output).last(kPage));
  machine.worker->submit();
  first->wait(kTimeoutSecs);
  LSM_EXPECT(output[0] == std::byte{5} && output[kPage - 1] == std::byte{5}, "row 5");
  expect_throw<std::runtime_error>("LBA 48 of namespace 1", [&] { second->wait(kTimeoutSecs); });
  check_broken(machine);
}

}  // namespace

}  // namespace lsm::testing
