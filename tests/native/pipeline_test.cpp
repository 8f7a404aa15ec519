// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Planner, storage, executor and prefetching together, as a loader runs them: plans are made in one
// thread and replayed in another, reads are several plans ahead. Every row delivered is that of the
// file, whatever the cache does.
#include <doctest/doctest.h>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "cache/executor.h"
#include "tests/native/planner_cases.h"

namespace lsm::testing {
namespace {

constexpr int64_t kPipelineNodes = 300;
constexpr auto kQueueTimeout = std::chrono::seconds(60);

/// A plan, and its rows on their way.
struct Move {
  cache::Plan plan;
  std::vector<std::byte> rows;
  std::shared_ptr<Request> request;

  ~Move() {
    if (request) request->cancel();
  }
};

/// At most `limit` moves between the thread that plans and the one that replays.
class MoveQueue {
 public:
  explicit MoveQueue(size_t limit) : limit_(limit) {}

  /// False once closed.
  bool push(std::unique_ptr<Move> move) {
    std::unique_lock lock(mutex_);
    const bool has_room =
        changed_.wait_for(lock, kQueueTimeout, [&] { return closed_ || moves_.size() < limit_; });
    LSM_EXPECT(has_room, "nothing was replayed");
    if (closed_) return false;
    moves_.push_back(std::move(move));
    changed_.notify_all();
    return true;
  }
  std::unique_ptr<Move> pop() {
    std::unique_lock lock(mutex_);
    const bool has_move =
        changed_.wait_for(lock, kQueueTimeout, [&] { return closed_ || !moves_.empty(); });
    LSM_EXPECT(has_move && !moves_.empty(), "nothing was planned");
    auto move = std::move(moves_.front());
    moves_.pop_front();
    changed_.notify_all();
    return move;
  }
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Move>> moves_;
  bool closed_ = false;
};

class Pipeline {
 public:
  Pipeline(const PlannerCase& planned, Storage& storage, int num_threads,
           int64_t prefetch_iterations)
      : planned_(planned),
        storage_(storage),
        pool_(num_threads),
        num_threads_(num_threads),
        executor_({planned.config.num_lines, planned.victim_slots(), prefetch_iterations}, storage,
                  planned.static_ids, planned.constant_ids, kTimeoutSecs) {}

  /// Delivers all batches, and checks them. Afterwards, or after an error, it can be run again.
  void run(size_t num_ahead) {
    MoveQueue queue(num_ahead);
    std::exception_ptr planning_error;
    std::thread planning([&] {
      try {
        plan_all(queue);
      } catch (...) {
        planning_error = std::current_exception();
        queue.close();
      }
    });
    std::exception_ptr error;
    std::unique_ptr<Move> last;
    try {
      for (int64_t t = 0; t < planned_.num_batches(); ++t) {
        last = queue.pop();
        replay(*last);
      }
    } catch (...) {
      error = std::current_exception();
    }
    queue.close();
    planning.join();
    executor_.start_over();  // before the queue's batches go
    if (planning_error) std::rethrow_exception(planning_error);
    if (error) std::rethrow_exception(error);
  }

  int64_t prefetched_rows() const { return executor_.prefetched_rows(); }
  int64_t victim_hits() const { return victim_hits_; }

 private:
  void plan_all(MoveQueue& queue) {
    const auto planner = planned_.make_planner(num_threads_);
    for (int64_t t = 0; t < planned_.num_batches(); ++t) {
      planned_.push_until(*planner, t);
      auto move = std::make_unique<Move>();
      planner->plan(&move->plan);
      move->rows.resize(move->plan.ids.size() * static_cast<size_t>(executor_.row_bytes()));
      read(*move);
      executor_.open_batch(t, {move->plan.source, move->plan.slot, move->rows});
      if (!queue.push(std::move(move))) return;
    }
  }

  void read(Move& move) {
    if (move.plan.miss_id.empty()) return;
    const RowRead read{move.plan.miss_id, move.plan.miss_position, move.rows};
    move.request = storage_.submit({&read, 1}).front();
  }

  void replay(Move& move) {
    if (move.request) move.request->wait(kTimeoutSecs);
    const cache::Plan& plan = move.plan;
    executor_.replay(plan, {}, move.rows, pool_);
    const auto row_bytes = static_cast<size_t>(executor_.row_bytes());
    for (size_t i = 0; i < plan.ids.size(); ++i) {
      LSM_EXPECT(is_row({&move.rows[i * row_bytes], row_bytes}, plan.ids[i]), planned_.name(),
                 ", iteration ", plan.iteration, ", position ", i, " from tier ",
                 static_cast<int>(plan.source[i]));
    }
    victim_hits_ += plan.counters.victim_hits;
  }

  const PlannerCase& planned_;
  Storage& storage_;
  ThreadPool pool_;
  const int num_threads_;
  CacheExecutor executor_;
  int64_t victim_hits_ = 0;
};

void run_case(uint64_t seed, const std::string& policy, const std::string& mode, RowFiles& files,
              const std::string& engine) {
  const PlannerCase planned = PlannerCase::draw(seed, policy, mode, kPipelineNodes);
  Random random(seed);
  const auto storage = files.open(engine, {.queue_depth = 8, .num_threads = 2});
  Pipeline pipeline(planned, *storage, seed % 2 == 0 ? 1 : 4, random.between(0, 4));
  for (int round = 0; round < 2; ++round) {
    pipeline.run(static_cast<size_t>(random.between(1, 5)));
  }
  LSM_EXPECT(pipeline.prefetched_rows() <= pipeline.victim_hits(), planned.name(), ": ",
             pipeline.prefetched_rows(), " of ", pipeline.victim_hits());
}

std::vector<std::string> online_policies() {
  auto policies = cache::policy_names();
  std::erase(policies, "belady");
  return policies;
}

TEST_CASE("pipeline: every policy") {
  RowFiles files({kPipelineNodes, 136, 4096, 2});
  uint64_t seed = 0;
  for (const std::string& policy : online_policies()) {
    for (const char* mode : {"none", "queues", "pool"}) {
      for (const std::string& engine : {std::string("posix"), engines().back()}) {
        run_case(++seed, policy, mode, files, engine);
      }
    }
  }
}

TEST_CASE("pipeline: every engine") {
  for (const int64_t row_bytes : {64, 4096, 9000}) {
    RowFiles files({kPipelineNodes, row_bytes, 4096, 1});
    uint64_t seed = static_cast<uint64_t>(row_bytes);
    for (const std::string& engine : engines()) {
      for (const char* policy : {"lookahead", "hybrid"}) {
        for (const char* mode : {"queues", "pool"}) {
          run_case(++seed, policy, mode, files, engine);
          run_case(++seed, policy, mode, files, engine);
        }
      }
    }
  }
}

/// After a read error, what is open is dropped while reads are under way; then all starts anew.
TEST_CASE("pipeline: read errors") {
  RowFiles files({kPipelineNodes, 4096, 4096, 1});
  for (const std::string& engine : {std::string("posix"), engines().back()}) {
    if (engine != "posix" && engine != "io_uring") continue;
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      PlannerCase planned = PlannerCase::draw(seed, "lookahead", "pool", kPipelineNodes);
      planned.static_ids.clear();
      planned.constant_ids.clear();
      planned.batches.front() = {3, 1, 2};
      planned.rank_starts.front().clear();
      const auto storage = files.open(engine, {.queue_depth = 4});
      Pipeline pipeline(planned, *storage, 4, 2);
      storage->faults().arm(Fault::kError, 0, EIO);
      expect_throw<SystemError>("Input/output error", [&] { pipeline.run(3); });
      pipeline.run(3);
    }
  }
}

}  // namespace

}  // namespace lsm::testing
