// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/thread_pool.h"

#include <atomic>
#include <exception>

#include "kernels/core/check.h"
#include "kernels/core/start_thread.h"

namespace lsm {

struct ThreadPool::Loop {
  int64_t size;
  int64_t grain;
  const std::function<void(int64_t, int64_t)>* body;
  std::atomic<int64_t> next{0};

  std::mutex mutex;
  std::condition_variable done;
  int64_t finished = 0;  // elements of [0, size) whose range has returned; guarded by mutex
  std::exception_ptr error;

  bool has_work() const { return next.load(std::memory_order_relaxed) < size; }

  void run() {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= size) return;
      const int64_t end = std::min(begin + grain, size);
      std::exception_ptr thrown;
      try {
        (*body)(begin, end);
      } catch (...) {
        thrown = std::current_exception();
      }
      std::lock_guard lock(mutex);
      if (thrown && !error) error = thrown;
      finished += end - begin;
      if (finished == size) done.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) {
  check_argument(num_threads >= 1 && num_threads <= kMostThreads, "num_threads: expected 1 to ",
                 kMostThreads, ", got ", num_threads);
  start_threads(threads_, num_threads - 1, [this] { work(); }, [this] { stop(); });
}

ThreadPool::~ThreadPool() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

void ThreadPool::parallel_for(int64_t size, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& body) {
  if (size <= 0) return;
  if (threads_.empty() || size <= grain) {
    body(0, size);
    return;
  }
  auto loop = std::make_shared<Loop>();
  loop->size = size;
  loop->grain = grain;
  loop->body = &body;
  {
    std::lock_guard lock(mutex_);
    loops_.push_back(loop);
  }
  wake_.notify_all();
  loop->run();
  {
    std::unique_lock lock(loop->mutex);
    loop->done.wait(lock, [&] { return loop->finished == loop->size; });
  }
  {
    std::lock_guard lock(mutex_);
    std::erase(loops_, loop);
  }
  if (loop->error) std::rethrow_exception(loop->error);
}

void ThreadPool::work() {
  for (;;) {
    std::shared_ptr<Loop> loop;
    {
      std::unique_lock lock(mutex_);
      for (;;) {
        while (!loops_.empty() && !loops_.front()->has_work()) loops_.pop_front();
        if (!loops_.empty() || stopping_) break;
        wake_.wait(lock);
      }
      if (loops_.empty()) return;
      loop = loops_.front();
    }
    loop->run();
  }
}

}  // namespace lsm
