// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/warps.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated/runtime/chance.h"
#include "tests/emulated/runtime/fiber.h"
#include "tests/emulated/runtime/hooks.h"
#include "tests/emulated/runtime/waiting.h"

namespace emulated {
namespace {

constexpr uint32_t kLanes = 32;
constexpr int kNumWorkers = 3;
// Warps that follow each other in a worker use different fibers, so that the sanitizer does not
// take their lanes for the same threads.
constexpr int kWarpsOfWorker = 2;

/// A grid that is being run. Workers take its warps.
struct Grid {
  const char* kernel;
  int device;
  LaunchShape shape;
  LaunchBody body;
  bool holds_sms;
  bool has_traffic;  // is counted
  KernelCounts* counts;
  Launch launch;
  uint32_t warps_per_block;
  std::vector<uint32_t> order;     // of all warps
  std::atomic<uint32_t> taken{0};  // of `order`
  std::atomic<uint32_t> finished{0};
  Token begun, ended;
  Grid* next = nullptr;  // of those that are being run
};

struct ReadWorker {
  enum State : uint8_t { kRuns, kMeets, kEnded };

  std::unique_ptr<Fiber> fiber;
  const Grid* grid = nullptr;
  OwnMemory own{};
  LaneTraffic traffic;
  State state = kEnded;
  unsigned thread = 0, block = 0;
  // Where it meets the others, with what, and the answer.
  Meeting meeting{};
  uint32_t mask = 0, argument = 0;
  uint64_t value = 0, answer = 0;
  const char* file = "";
  int line = 0;
  // Two tokens of the warp in turns: what a lane releases at the next barrier must not reach one
  // that has yet to leave this one.
  const Token* barriers = nullptr;
  uint32_t num_barriers = 0;
};

thread_local ReadWorker* running = nullptr;
thread_local bool has_fenced = false;

void lane_main(void* argument) {
  ReadWorker& lane = *static_cast<ReadWorker*>(argument);
  for (;;) {
    lane.grid->begun.acquire();
    lane.grid->body.run(lane.grid->body.parameters);
    lane.grid->ended.release();
    lane.state = ReadWorker::kEnded;
    lane.fiber->leave();
  }
}

/// 32 lanes that run one warp after the other.
class Warp {
 public:
  void run(Grid& grid, uint32_t number, Chance& chance) {
    begin(grid, number);
    for (;;) {
      for (uint32_t i = num_slots_; i > 1; --i) std::swap(order_[i - 1], order_[chance.below(i)]);
      for (uint32_t i = 0; i < num_slots_; ++i) resume(lanes_[order_[i]]);
      const auto ended = std::count_if(lanes_, lanes_ + num_slots_, [](const ReadWorker& lane) {
        return lane.state == ReadWorker::kEnded;
      });
      if (static_cast<uint32_t>(ended) == num_slots_) break;
      meet_all(grid);
    }
    if (grid.has_traffic) add_traffic();
  }

 private:
  void begin(Grid& grid, uint32_t number) {
    const uint32_t first = number % grid.warps_per_block * kLanes;
    num_slots_ = std::min(kLanes, grid.shape.block_threads - first);
    for (uint32_t i = 0; i < num_slots_; ++i) {
      ReadWorker& lane = lanes_[i];
      if (!lane.fiber) lane.fiber = std::make_unique<Fiber>(lane_main, &lane);
      lane.grid = &grid;
      lane.barriers = barriers_;
      lane.state = ReadWorker::kRuns;
      lane.thread = first + i;
      lane.block = number / grid.warps_per_block;
      lane.num_barriers = 0;
      lane.own = {lane.fiber->stack(),
                  Fiber::kStackBytes,
                  reinterpret_cast<uintptr_t>(grid.body.parameters),
                  grid.body.parameter_bytes,
                  grid.kernel,
                  grid.device,
                  number,
                  &grid.launch,
                  grid.holds_sms,
                  grid.counts,
                  grid.has_traffic ? &lane.traffic : nullptr};
      lane.traffic = {};
      order_[i] = i;
    }
  }

  void add_traffic() const {
    std::vector<uintptr_t> all;
    int64_t most = 0;
    for (uint32_t i = 0; i < num_slots_; ++i) {
      const LaneTraffic& own = lanes_[i].traffic;
      most = std::max(most, own.instructions);
      all.insert(all.end(), own.sectors.begin(), own.sectors.end());
    }
    std::sort(all.begin(), all.end());
    warp_traffic().instructions += most;
    warp_traffic().sectors += std::unique(all.begin(), all.end()) - all.begin();
  }

  void resume(ReadWorker& lane) {
    running = &lane;
    own_memory = &lane.own;
    lane.fiber->enter();
    own_memory = nullptr;
    running = nullptr;
  }

  /// All lanes are where one of them is, or the kernel is wrong.
  void meet_all(const Grid& grid) {
    const ReadWorker& first =
        *std::find_if(lanes_, lanes_ + num_slots_,
                      [](const ReadWorker& lane) { return lane.state == ReadWorker::kMeets; });
    for (const ReadWorker& lane : lanes_) {
      const bool is_there = lane.state == ReadWorker::kMeets && lane.meeting == first.meeting &&
                            lane.line == first.line && lane.mask == ~0u;
      if (&lane < lanes_ + num_slots_ && is_there) continue;
      const bool has_ended = lane.state == ReadWorker::kEnded;
      report(
          "%s on device %d: the lanes of a warp diverge: lane %zu meets the others at %s:%d, "
          "and lane %zu %s %s:%d (mask %#x)",
          grid.kernel, grid.device, &first - lanes_, first.file, first.line, &lane - lanes_,
          has_ended ? "has ended or is none," : "is at", has_ended ? "" : lane.file,
          has_ended ? 0 : lane.line, lane.mask);
    }
    for (uint32_t i = 0; i < kLanes; ++i) lanes_[i].answer = answer(i);
    for (ReadWorker& lane : lanes_) lane.state = ReadWorker::kRuns;
  }

  uint64_t answer(uint32_t lane) const {
    const uint32_t argument = lanes_[lane].argument;
    switch (lanes_[lane].meeting) {
      case Meeting::kShuffle:
        return lanes_[argument % kLanes].value;
      case Meeting::kShuffleXor:
        return lanes_[(lane ^ argument) % kLanes].value;
      case Meeting::kBallot: {
        uint64_t votes = 0;
        for (uint32_t i = 0; i < kLanes; ++i) votes |= lanes_[i].value << i;
        return votes;
      }
      case Meeting::kSyncWarp:
        return 0;
    }
    return 0;
  }

  Token barriers_[2];
  ReadWorker lanes_[kLanes];
  uint32_t order_[kLanes] = {};
  uint32_t num_slots_ = 0;
};

/// The threads that run warps, and the grids that they run. Never destroyed.
class Workers {
 public:
  Workers() {
    for (int i = 0; i < kNumWorkers; ++i) std::thread([this] { work(); }).detach();
  }

  void run(Grid& grid) {
    {
      const std::lock_guard lock(lock_);
      grid.next = first_;
      first_ = &grid;
    }
    has_work_.notify();
    is_done_.wait_until([&] { return grid.finished == grid.order.size(); });
  }

 private:
  /// A grid that has a warp left, and the warp's place in its order.
  Grid* take(Chance& chance, uint32_t* place) {
    const std::lock_guard lock(lock_);
    uint32_t num_grids = 0;
    Grid* chosen = nullptr;
    for (Grid* grid = first_; grid != nullptr; grid = grid->next) {
      if (chance.below(++num_grids) == 0) chosen = grid;
    }
    if (chosen == nullptr) return nullptr;
    *place = chosen->taken++;
    if (chosen->taken == chosen->order.size()) {
      Grid** link = &first_;
      while (*link != chosen) link = &(*link)->next;
      *link = chosen->next;
    }
    return chosen;
  }

  void work() {
    is_on_device = true;
    Chance chance;
    const auto warps = std::make_unique<Warp[]>(kWarpsOfWorker);
    for (uint32_t round = 0;; ++round) {
      Grid* grid = nullptr;
      uint32_t place = 0;
      has_work_.wait_until([&] { return (grid = take(chance, &place)) != nullptr; });
      const uint32_t num_warps = static_cast<uint32_t>(grid->order.size());
      warps[round % kWarpsOfWorker].run(*grid, grid->order[place], chance);
      if (++grid->finished == num_warps) is_done_.notify();
    }
  }

  Lock lock_;
  Change has_work_, is_done_;
  Grid* first_ = nullptr;
};

}  // namespace

void run_kernel(const char* kernel, int device, const LaunchShape& shape, const LaunchBody& body,
                bool holds_sms) {
  static Workers* const workers = new Workers;
  static thread_local Chance chance;
  Grid grid{.kernel = kernel,
            .device = device,
            .shape = shape,
            .body = body,
            .holds_sms = holds_sms,
            .has_traffic = counts_traffic()};
  static std::atomic<uint32_t> num_launches{0};
  grid.launch.number = ++num_launches;
  grid.counts = &counts_of(kernel);
  ++grid.counts->launches;
  grid.warps_per_block = (shape.block_threads + kLanes - 1) / kLanes;
  grid.order.resize(size_t{shape.num_blocks} * grid.warps_per_block);
  std::iota(grid.order.begin(), grid.order.end(), 0u);
  for (auto i = static_cast<uint32_t>(grid.order.size()); i > 1; --i) {
    std::swap(grid.order[i - 1], grid.order[chance.below(i)]);
  }
  grid.begun.release();
  workers->run(grid);
  grid.ended.acquire();
}

Dim thread_index() {
  return {running->thread};
}
Dim block_index() {
  return {running->block};
}
Dim block_size() {
  return {running->grid->shape.block_threads};
}
Dim grid_size() {
  return {running->grid->shape.num_blocks};
}

uint64_t meet(Meeting meeting, uint32_t mask, uint64_t value, uint32_t argument, const char* file,
              int line) {
  ReadWorker& lane = *running;
  lane.meeting = meeting;
  lane.mask = mask;
  lane.value = value;
  lane.argument = argument;
  lane.file = file;
  lane.line = line;
  lane.state = ReadWorker::kMeets;
  // Of the meetings only this one orders memory.
  const Token* const barrier =
      meeting == Meeting::kSyncWarp ? lane.barriers + lane.num_barriers++ % 2 : nullptr;
  if (barrier != nullptr) barrier->release();
  lane.fiber->leave();
  if (barrier != nullptr) barrier->acquire();
  return lane.answer;
}

void fence_system() {
  if (running != nullptr) running->own.launch->is_ordered = true;
  has_fenced = true;
}

bool take_fence() {
  return std::exchange(has_fenced, false);
}

}  // namespace emulated
