// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/engines/io_uring_storage.h"

#include <liburing.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>

#include "kernels/core/buffer.h"
#include "kernels/core/check.h"
#include "kernels/core/start_thread.h"
#include "kernels/io/read_slots.h"

namespace lsm {
namespace {

// Interval at which a worker that waits for the disk checks for an end or new work.
constexpr int64_t kPollNs = 100'000'000;

// Reads are submitted a few at a time: the disk works on the first while the next are prepared. All
// at once left it idle (0.85x the reads/s at depth 32); one by one costs more calls.
constexpr int kSubmitBatch = 4;

/// The limit on locked memory, and the remedy, in words.
std::string locked_memory_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string size = limit.rlim_cur == RLIM_INFINITY
                               ? std::string("unlimited")
                               : concat(limit.rlim_cur >> 10, " KiB for all processes of a user");
  return concat("the locked-memory limit (RLIMIT_MEMLOCK) is ", size,
                "; raise it: ulimit -l unlimited, LimitMEMLOCK=infinity for systemd, ",
                "--ulimit memlock=-1 for docker");
}

// The smallest ring that is tried if there is no memory for the requested one.
constexpr unsigned kFewestEntries = 8;

void check_ring(int result, const char* what) {
  if (result >= 0) return;
  const std::string remedy = result == -ENOMEM
                                 ? locked_memory_limit() + ", or use storage.engine=posix"
                                 : std::string("use storage.engine=posix, or run `lsm doctor`");
  throw SystemError(-result, "io_uring", concat(what, ": ", std::strerror(-result), "; ", remedy));
}

}  // namespace

class IoUringStorage::Worker {
 public:
  explicit Worker(IoUringStorage& storage)
      : storage_(storage),
        depth_(static_cast<size_t>(storage.options_.queue_depth)),
        slots_(num_read_slots(depth_)),
        memory_(slots_.size() * static_cast<size_t>(storage.options_.max_read_bytes)) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].buffer = memory_.data() + i * storage.options_.max_read_bytes;
      free_slots_.push_back(static_cast<unsigned>(slots_.size() - 1 - i));
    }
    // A ring for a single issuer belongs to the thread that creates it, so the worker creates it.
    std::promise<std::vector<std::string>> ready;
    auto started = ready.get_future();
    thread_ = start_thread([this, &ready] { run(ready); });
    try {
      for (std::string& note : started.get()) storage_.notes_.push_back(std::move(note));
    } catch (...) {
      thread_.join();
      throw;
    }
  }

  ~Worker() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Completion {
    unsigned index;  // of the slot
    int64_t result;
  };

  void run(std::promise<std::vector<std::string>>& ready) {
    try {
      std::vector<std::string> notes = open_ring();
      ready.set_value(std::move(notes));
    } catch (...) {
      ready.set_exception(std::current_exception());
      return;
    }
    while (fill()) reap();
    // Abandons reads in flight; exiting the ring waits for or cancels them.
    io_uring_queue_exit(&ring_);
    for (ActiveRead& slot : slots_) {
      if (slot.claim.group) abandon(slot, "the storage engine was closed during the read");
    }
  }

  std::vector<std::string> open_ring() {
    std::vector<std::string> notes;
    unsigned flags = 0;
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
    // Completions are processed when this thread polls, not by interrupting it.
    flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
#endif
    auto entries = static_cast<unsigned>(slots_.size());
    int result = io_uring_queue_init(entries, &ring_, flags);
    if (result == -EINVAL && flags != 0) {
      flags = 0;  // before Linux 6.1
      result = io_uring_queue_init(entries, &ring_, flags);
    }
    // A ring is locked memory, too. A small one is faster than none.
    while (result == -ENOMEM && entries >= 2 * kFewestEntries) {
      entries /= 2;
      result = io_uring_queue_init(entries, &ring_, flags);
    }
    check_ring(result, "io_uring_queue_init");
    if (entries < slots_.size()) {
      std::erase_if(free_slots_, [&](unsigned slot) { return slot >= entries; });
      depth_ = std::min<size_t>(depth_, entries);
      notes.push_back(concat("storage.queue_depth: no memory for a ring of ", slots_.size(),
                             " reads, using ", entries, ": ", locked_memory_limit()));
    }
    const auto& descriptors = storage_.files_.descriptors();
    result = io_uring_register_files(&ring_, descriptors.data(),
                                     static_cast<unsigned>(descriptors.size()));
    fixed_files_ = result == 0;
    if (!fixed_files_) {
      notes.push_back(concat("io_uring files are not registered (", std::strerror(-result),
                             "): each read looks its file up, which is slower"));
    }
    std::vector<iovec> vectors(slots_.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      vectors[i] = {slots_[i].buffer, static_cast<size_t>(storage_.options_.max_read_bytes)};
    }
    result =
        io_uring_register_buffers(&ring_, vectors.data(), static_cast<unsigned>(vectors.size()));
    fixed_buffers_ = result == 0;
    if (!fixed_buffers_) {
      notes.push_back(concat("io_uring buffers are not registered (", std::strerror(-result),
                             "), so reads are slower: they take ", memory_.capacity() >> 10,
                             " KiB for each ring, and ", locked_memory_limit(),
                             ", or lower storage.queue_depth"));
    }
    return notes;
  }

  /// Starts reads while there are free slots and work. Returns false at the end.
  bool fill() {
    if (storage_.stopping_.load()) return false;
    start_reads(/*block=*/in_flight_ == 0);
    return !storage_.stopping_.load() || in_flight_ > 0;
  }

  void start_reads(bool block) {
    claims_.clear();
    const size_t room = std::min(free_slots_.size(), depth_ - std::min(depth_, in_flight_));
    if (room > 0) storage_.queue_.claim(claims_, room, block);
    for (Claim& claim : claims_) {
      const unsigned index = free_slots_.back();
      free_slots_.pop_back();
      slots_[index].claim = std::move(claim);
      slots_[index].done = 0;
      issue(index);
    }
  }

  void issue(unsigned index) {
    ActiveRead& slot = slots_[index];
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // never null: as many entries as slots
    const auto offset = static_cast<uint64_t>(slot.offset());
    std::byte* target = slot.buffer + slot.done;
    const auto index_of_file = static_cast<size_t>(slot.claim.extent->file);
    const int file =
        fixed_files_ ? static_cast<int>(index_of_file) : storage_.files_.descriptor(index_of_file);
    if (fixed_buffers_) {
      io_uring_prep_read_fixed(entry, file, target, slot.bytes_left(), offset,
                               static_cast<int>(index));
    } else {
      io_uring_prep_read(entry, file, target, slot.bytes_left(), offset);
    }
    if (fixed_files_) entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(entry, index);
    slot.started_ns = now_ns();
    storage_.stats_.reads.fetch_add(1, std::memory_order_relaxed);
    ++in_flight_;
    if (++prepared_ == kSubmitBatch) submit();
  }

  void submit() {
    prepared_ = 0;
    // A failure leaves the entries in the ring; reap() submits them again and reports persistent
    // errors.
    io_uring_submit(&ring_);
  }

  /// Submits the prepared reads, waits for at least one completion, and processes all that have
  /// arrived.
  void reap() {
    if (in_flight_ == 0) return;
    __kernel_timespec timeout{0, kPollNs};
    io_uring_cqe* completion = nullptr;
    const int result = io_uring_submit_and_wait_timeout(&ring_, &completion, 1, &timeout, nullptr);
    if (result < 0 && result != -ETIME && result != -EINTR && result != -EAGAIN &&
        result != -EBUSY) {
      fail_all(result);
      return;
    }
    collect();
    start_reads(/*block=*/false);
    submit();
    for (const Completion& done : completions_) finish(done);
  }

  /// Takes all completions off the ring.
  void collect() {
    completions_.clear();
    const uint64_t now = now_ns();
    io_uring_cqe* entry = nullptr;
    unsigned head = 0;
    unsigned count = 0;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ++count;
      const auto index = static_cast<unsigned>(io_uring_cqe_get_data64(entry));
      bool stalled = false;
      const int64_t result = storage_.faults_.apply(entry->res, &stalled);
      if (stalled) continue;  // as if the disk had lost it: the slot stays taken
      --in_flight_;
      storage_.stats_.latency.add(now - slots_[index].started_ns);
      completions_.push_back({index, result});
    }
    io_uring_cq_advance(&ring_, count);
  }

  void finish(const Completion& done) {
    ActiveRead& slot = slots_[done.index];
    if (storage_.advance(slot, done.result) == Progress::kReadAgain) {
      issue(done.index);
      return;
    }
    slot.claim = {};
    free_slots_.push_back(done.index);
  }

  void abandon(ActiveRead& slot, const char* why) {
    slot.claim.group->fail(*slot.claim.extent, std::make_exception_ptr(std::runtime_error(why)));
    slot.claim = {};
  }

  /// The ring itself has failed: no read can succeed any more, and all requests get the error.
  void fail_all(int result) {
    const std::string why = concat("io_uring_enter: ", std::strerror(-result));
    for (ActiveRead& slot : slots_) {
      if (slot.claim.group) abandon(slot, why.c_str());
    }
    storage_.stopping_.store(true);
    storage_.queue_.close();
    in_flight_ = 0;
  }

  IoUringStorage& storage_;
  size_t depth_;
  std::vector<ActiveRead> slots_;
  HostBlock memory_;
  std::vector<unsigned> free_slots_;
  std::vector<Completion> completions_;
  std::vector<Claim> claims_;
  size_t in_flight_ = 0;
  int prepared_ = 0;
  bool fixed_files_ = false;
  bool fixed_buffers_ = false;
  io_uring ring_{};
  std::thread thread_;
};

IoUringStorage::IoUringStorage(std::vector<std::string> paths, const RowLayout& layout,
                               const EngineOptions& options)
    : FileStorage("io_uring", std::move(paths), layout, options) {
  check_argument(options.queue_depth >= 1 && options.queue_depth <= 4096,
                 "queue_depth: expected 1 to 4096, got ", options.queue_depth);
  try {
    for (int i = 0; i < options.num_threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(*this));
    }
  } catch (...) {
    stopping_.store(true);
    queue_.close();
    workers_.clear();
    throw;
  }
}

IoUringStorage::~IoUringStorage() {
  stopping_.store(true);
  queue_.close();
  workers_.clear();
}

std::string io_uring_problem() {
  io_uring ring{};
  const int result = io_uring_queue_init(kFewestEntries, &ring, 0);
  if (result == -ENOMEM) {
    return concat("there is no memory for io_uring's rings: ", locked_memory_limit());
  }
  if (result < 0) {
    return concat("the kernel refuses io_uring (", std::strerror(-result),
                  "): a container's seccomp profile or kernel.io_uring_disabled forbids it");
  }
  io_uring_queue_exit(&ring);
  return "";
}

}  // namespace lsm
